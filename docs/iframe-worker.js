// Browsers start no worker from a folder. There the search runs in a hidden frame instead, and the page works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.src = new URL(address, location.href).href;
      this.isReady = new Promise((resolve) => script.addEventListener("load", resolve));
      inner.document.body.append(script);
    }

    postMessage(data) {
      this.isReady.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
