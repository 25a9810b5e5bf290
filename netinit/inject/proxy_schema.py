"""The fields of a ProxyConfig and of the messages in it, in protobuf's order, which is the order of its JSON.

A line is `field:type`. Types: string, bool, int32, uint32, double; Duration and the wrappers of scalars (BoolValue,
Int32Value, Int64Value); `enum:NAME`; another message; `[]` before a type for lists; `map:type` for maps of texts.
`/NAME` behind a type names the oneof of which only one field is set.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

__all__ = ["ENUMS", "fields_of"]

_MESSAGES = {
    "ProxyConfig": """configPath:string binaryPath:string serviceCluster:string/cluster
        tracingServiceName:enum:TracingServiceName/cluster drainDuration:Duration parentShutdownDuration:Duration
        discoveryAddress:string discoveryRefreshDelay:Duration zipkinAddress:string connectTimeout:Duration
        statsdUdpAddress:string envoyMetricsServiceAddress:string proxyAdminPort:int32 availabilityZone:string
        controlPlaneAuthPolicy:enum:AuthenticationPolicy customConfigFile:string statNameLength:int32
        concurrency:Int32Value proxyBootstrapTemplatePath:string interceptionMode:enum:InboundInterceptionMode
        tracing:Tracing sds:SDS envoyAccessLogService:RemoteService envoyMetricsService:RemoteService
        proxyMetadata:map:string runtimeValues:map:string statusPort:int32 extraStatTags:[]string
        gatewayTopology:Topology terminationDrainDuration:Duration meshId:string readinessProbe:ReadinessProbe
        proxyStatsMatcher:ProxyStatsMatcher holdApplicationUntilProxyStarts:BoolValue caCertificatesPem:[]string
        image:ProxyImage privateKeyProvider:PrivateKeyProvider proxyHeaders:ProxyHeaders fileFlushInterval:Duration
        fileFlushMinSizeKb:uint32 statsCompression:BoolValue connectionSettings:ConnectionSettings""",
    "Tracing": """zipkin:Address/tracer lightstep:Lightstep/tracer datadog:Address/tracer stackdriver:Stackdriver/tracer
        openCensusAgent:OpenCensusAgent/tracer customTags:map:CustomTag maxPathTagLength:uint32 sampling:double
        tlsSettings:ClientTLSSettings enableIstioTags:BoolValue""",
    "Address": "address:string",
    "Lightstep": "address:string accessToken:string",
    "Stackdriver": """debug:bool maxNumberOfAttributes:Int64Value maxNumberOfAnnotations:Int64Value
        maxNumberOfMessageEvents:Int64Value""",
    "OpenCensusAgent": "address:string context:[]enum:TraceContext",
    "CustomTag": "literal:Literal/type environment:Named/type header:Named/type",
    "Literal": "value:string",
    "Named": "name:string defaultValue:string",
    "ClientTLSSettings": """mode:enum:TLSmode clientCertificate:string privateKey:string caCertificates:string
        credentialName:string subjectAltNames:[]string sni:string insecureSkipVerify:BoolValue caCrl:string""",
    "SDS": "enabled:bool k8sSaJwtPath:string",
    "RemoteService": "address:string tlsSettings:ClientTLSSettings tcpKeepalive:TcpKeepalive",
    "TcpKeepalive": "probes:uint32 time:Duration interval:Duration",
    "Topology": """numTrustedProxies:uint32 forwardClientCertDetails:enum:ForwardClientCertDetails
        proxyProtocol:Nothing""",
    "Nothing": "",
    "ReadinessProbe": """initialDelaySeconds:int32 timeoutSeconds:int32 periodSeconds:int32 successThreshold:int32
        failureThreshold:int32 httpGet:HttpGet/method tcpSocket:TcpSocket/method exec:Exec/method grpc:Grpc/method""",
    "HttpGet": "path:string port:uint32 host:string scheme:string httpHeaders:[]Header",
    "Header": "name:string value:string",
    "TcpSocket": "host:string port:uint32",
    "Exec": "command:[]string",
    "Grpc": "port:uint32 service:string",
    "ProxyStatsMatcher": "inclusionPrefixes:[]string inclusionSuffixes:[]string inclusionRegexps:[]string",
    "ProxyImage": "imageType:string",
    "PrivateKeyProvider": "cryptomb:KeyProvider/provider qat:KeyProvider/provider",
    "KeyProvider": "pollDelay:Duration fallback:BoolValue",
    "ProxyHeaders": """forwardedClientCert:enum:ForwardClientCertDetails
        setCurrentClientCertDetails:ClientCertDetails requestId:Disabled server:Server attemptCount:Disabled
        envoyDebugHeaders:Disabled metadataExchangeHeaders:MetadataExchangeHeaders preserveHttp1HeaderCase:BoolValue
        xForwardedHost:Enabled xForwardedPort:Enabled""",
    "ClientCertDetails": "subject:BoolValue cert:BoolValue chain:BoolValue dns:BoolValue uri:BoolValue",
    "Disabled": "disabled:BoolValue",
    "Enabled": "enabled:BoolValue",
    "Server": "disabled:BoolValue value:string",
    "MetadataExchangeHeaders": "mode:enum:MetadataExchangeMode",
    "ConnectionSettings": """profile:enum:Profile listenerPerConnectionBufferLimitBytes:Int32Value
        clusterPerConnectionBufferLimitBytes:Int32Value httpIdleTimeout:Duration httpMaxConnectionDuration:Duration
        httpDrainTimeout:Duration httpRequestTimeout:Duration httpRequestHeadersTimeout:Duration
        httpStreamIdleTimeout:Duration httpMaxStreamDuration:Duration httpMaxConcurrentStreams:Int32Value
        http2InitialStreamWindowSize:Int32Value http2InitialConnectionWindowSize:Int32Value
        httpHeadersWithUnderscoresAction:enum:HeadersWithUnderscoresAction httpMergeSlashes:BoolValue
        httpPathWithEscapedSlashesAction:enum:PathWithEscapedSlashesAction listenerConnectionLimit:Int32Value
        globalDownstreamConnectionLimit:Int32Value""",
}
_UNDERSCORES, _SLASHES = "HEADERS_WITH_UNDERSCORES_", "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED"
ENUMS: Mapping[str, Mapping[int, str]] = {
    name: dict(enumerate(words.split()))
    for name, words in {
        "TracingServiceName": "APP_LABEL_AND_NAMESPACE CANONICAL_NAME_ONLY CANONICAL_NAME_AND_NAMESPACE",
        "InboundInterceptionMode": "REDIRECT TPROXY NONE",
        "TLSmode": "DISABLE SIMPLE MUTUAL ISTIO_MUTUAL",
        "Profile": "SIDECAR EDGE",
        "TraceContext": "UNSPECIFIED W3C_TRACE_CONTEXT GRPC_BIN CLOUD_TRACE_CONTEXT B3",
        "ForwardClientCertDetails": "UNDEFINED SANITIZE FORWARD_ONLY APPEND_FORWARD SANITIZE_SET ALWAYS_FORWARD_ONLY",
        "MetadataExchangeMode": "UNDEFINED IN_MESH",
        "HeadersWithUnderscoresAction": " ".join(
            _UNDERSCORES + word for word in ("UNSPECIFIED", "ALLOW", "REJECT_REQUEST", "DROP_HEADER")
        ),
        "PathWithEscapedSlashesAction": f"{_SLASHES} KEEP_UNCHANGED REJECT_REQUEST UNESCAPE_AND_REDIRECT "
        "UNESCAPE_AND_FORWARD",
    }.items()
} | {"AuthenticationPolicy": {0: "NONE", 1: "MUTUAL_TLS", 1000: "INHERIT"}}
"""The names of enumerations by number; 0 is the default."""


@functools.cache
def fields_of(message: str) -> Mapping[str, tuple[str, str]] | None:
    """The fields of a message by their JSON name, each with its type and its oneof; None for what is no message."""
    if message not in _MESSAGES:
        return None
    found = {}
    for field in _MESSAGES[message].split():
        name, _, rest = field.partition(":")
        kind, _, oneof = rest.partition("/")
        found[name] = (kind, oneof)
    return found
