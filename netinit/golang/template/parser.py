"""Parse tokens into syntax trees, with Go's grammar and messages."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from netinit.golang.template import lexer
from netinit.golang.template import nodes as syntax
from netinit.golang.template.cursor import Cursor, ParserState
from netinit.golang.template.lexer import Token, tokenize
from netinit.golang.template.literals import parse_number, quote, unquote

_OPERANDS: Final = frozenset(
    (
        lexer.BOOL,
        lexer.CHAR_CONSTANT,
        lexer.COMPLEX,
        lexer.DOT,
        lexer.FIELD,
        lexer.IDENTIFIER,
        lexer.NUMBER,
        "nil",
        lexer.RAW_STRING,
        lexer.STRING,
        lexer.VARIABLE,
        lexer.OPEN,
    )
)
_CONTROLS: Final = lexer.KEYWORDS - {"nil", "define"}
_LITERALS: Final = (syntax.Bool, syntax.Dot, syntax.Nil, syntax.NumberLiteral, syntax.StringLiteral)


def parse(name: str, text: str, delimiters: tuple[str, str], functions: Collection[str]) -> dict[str, syntax.Tree]:
    """Return the templates that the text defines, by name; the text itself is `name`. Raises TemplateError."""
    left, right = delimiters
    words = frozenset(word for word in ("break", "continue") if word in functions)
    shared = ParserState(name, text, tokenize(text, left, right, words), delimiters, functions)
    _Parser(shared, name).parse_text()
    return shared.trees


class _End:
    """{{end}} or {{else}}, which close a list of nodes."""

    def __init__(self, word: str, delimiters: tuple[str, str]) -> None:
        self.word = word
        self.shown = f"{delimiters[0]}{word}{delimiters[1]}"


class _Parser(Cursor):
    """The parser of one tree; {{define}} and {{block}} start another one on the same tokens."""

    def __init__(self, shared: ParserState, name: str) -> None:
        super().__init__(shared)
        self.tree = syntax.Tree(name, shared.name, shared.text)
        self.variables = ["$"]
        self.ranges = 0

    # --- lists ---

    def parse_text(self) -> None:
        while (token := self.peek()).kind != lexer.EOF:
            if token.kind == lexer.LEFT:
                before = self.shared.at
                self.skip()
                if self.next().kind == "define":
                    _Parser(self.shared, "definition").parse_definition()
                    continue
                self.shared.at = before
            node = self.text_or_action(token)
            if isinstance(node, _End):
                self.fail(f"unexpected {node.shown}")
            self.tree.body.append(node)
        self.add()

    def parse_definition(self) -> None:
        context = "define clause"
        token = self.next()
        self.tree.name = self.template_name(token, context)
        self.expect(lexer.RIGHT, context)
        self.parse_body(self.tree.body, context, self)
        self.add()

    def parse_body(self, body: list[syntax.Node], context: str, blame: _Parser) -> None:
        nodes, end = self.item_list()
        if end.word != "end":
            blame.fail(f"unexpected {end.shown} in {context}")
        body.extend(nodes)

    def add(self) -> None:
        trees, tree = self.shared.trees, self.tree
        old = trees.get(tree.name)
        if old is None or syntax.is_empty(old.body):
            trees[tree.name] = tree
        elif not syntax.is_empty(tree.body):
            self.fail(f"template: multiple definition of template {quote(tree.name)}")

    def item_list(self) -> tuple[list[syntax.Node], _End]:
        self.peek()
        self.enter()
        nodes: list[syntax.Node] = []
        while True:
            token = self.peek()
            if token.kind == lexer.EOF:
                self.fail("unexpected EOF")
            node = self.text_or_action(token)
            if isinstance(node, _End):
                self.leave()
                return nodes, node
            nodes.append(node)

    def text_or_action(self, token: Token) -> syntax.Node | _End:
        """Parse the node that starts with this token."""
        if token.kind == lexer.TEXT:
            self.skip()
            return syntax.Text(token.pos, token.text)
        if token.kind != lexer.LEFT:
            self.unexpected(token, "input")
        self.skip()
        self.action_at = token
        node = self.action()
        self.action_at = None
        return node

    # --- actions ---

    def action(self) -> syntax.Node | _End:
        token = self.peek()
        if token.kind in _CONTROLS:
            self.skip()
            found: syntax.Node | _End = getattr(self, f"{token.kind}_control")(token)
            return found
        return syntax.Action(token.pos, self.pipeline("command", lexer.RIGHT), self.shared.delimiters)

    def break_control(self, token: Token) -> syntax.Break:
        self.close_loop_word("{{break}}")
        return syntax.Break(token.pos)

    def continue_control(self, token: Token) -> syntax.Continue:
        self.close_loop_word("{{continue}}")
        return syntax.Continue(token.pos)

    def close_loop_word(self, word: str) -> None:
        token = self.next()
        if token.kind != lexer.RIGHT:
            self.unexpected(token, word)
        if not self.ranges:
            self.fail(f"{word} outside {{{{range}}}}")

    def end_control(self, _token: Token) -> _End:
        self.expect(lexer.RIGHT, "end")
        return _End("end", self.shared.delimiters)

    def else_control(self, _token: Token) -> _End:
        if self.peek().kind not in ("if", "with"):
            self.expect(lexer.RIGHT, "else")
        return _End("else", self.shared.delimiters)

    def if_control(self, _token: Token) -> syntax.If:
        return syntax.If(*self.branches("if"))

    def with_control(self, _token: Token) -> syntax.With:
        return syntax.With(*self.branches("with"))

    def branches(self, word: str) -> tuple[list[syntax.Branch], list[syntax.Node]]:
        """Parse {{if}} or {{with}} with any {{else if}}, {{else with}} and {{else}}."""
        mark = len(self.variables)
        found: list[syntax.Branch] = []
        otherwise: list[syntax.Node] = []
        while True:
            pipe = self.pipeline(word, lexer.RIGHT)
            body, end = self.item_list()
            found.append(syntax.Branch(pipe, body))
            if end.word == "else":
                if self.peek().kind == word:
                    self.next()
                    continue
                otherwise = self.else_list()
            break
        del self.variables[mark:]
        return found, otherwise

    def else_list(self) -> list[syntax.Node]:
        nodes, end = self.item_list()
        if end.word != "end":
            self.fail(f"expected end; found {end.shown}")
        return nodes

    def range_control(self, _token: Token) -> syntax.Range:
        mark = len(self.variables)
        pipe = self.pipeline("range", lexer.RIGHT)
        self.ranges += 1
        body, end = self.item_list()
        self.ranges -= 1
        otherwise = self.else_list() if end.word == "else" else []
        del self.variables[mark:]
        return syntax.Range(pipe, body, otherwise)

    def block_control(self, _token: Token) -> syntax.Invoke:
        context = "block clause"
        token = self.next()
        name = self.template_name(token, context)
        pipe = self.pipeline(context, lexer.RIGHT)
        inner = _Parser(self.shared, name)
        inner.parse_body(inner.tree.body, context, self)
        inner.add()
        return syntax.Invoke(token.pos, name, pipe, self.shared.delimiters)

    def template_control(self, _token: Token) -> syntax.Invoke:
        context = "template clause"
        token = self.next()
        name = self.template_name(token, context)
        pipe = None
        if self.peek().kind == lexer.RIGHT:
            self.next()
        else:
            pipe = self.pipeline(context, lexer.RIGHT)
        return syntax.Invoke(token.pos, name, pipe, self.shared.delimiters)

    def template_name(self, token: Token, context: str) -> str:
        if token.kind not in (lexer.STRING, lexer.RAW_STRING):
            self.unexpected(token, context)
        return self.unquote(token.text)

    def unquote(self, literal: str) -> str:
        try:
            return unquote(literal)
        except ValueError as problem:
            self.fail(str(problem))

    # --- pipelines ---

    def pipeline(self, context: str, end: str) -> syntax.Pipe:
        token = self.peek()
        pipe = syntax.Pipe(token.pos)
        if token.kind == lexer.VARIABLE:
            self.declarations(pipe, context)
        while True:
            token = self.peek()
            if token.kind == end:
                self.skip()
                self.check_pipeline(pipe, context)
                return pipe
            if token.kind not in _OPERANDS:
                self.next()
                self.unexpected(token, context)
            pipe.commands.append(self.command(token))

    def declarations(self, pipe: syntax.Pipe, context: str) -> None:
        while (variable := self.peek()).kind == lexer.VARIABLE:
            before = self.shared.at
            self.skip()
            follower = self.peek()
            comma = follower.kind == lexer.CHAR and follower.text == ","
            if not comma and follower.kind not in (lexer.ASSIGN, lexer.DECLARE):
                self.shared.at = before
                return
            self.next()
            pipe.variables.append(syntax.Variable(variable.pos, variable.text))
            self.variables.append(variable.text)
            if not comma:
                pipe.assigns = follower.kind == lexer.ASSIGN
                return
            if context != "range" or len(pipe.variables) > 1:
                self.fail(f"too many declarations in {context}")
            if self.peek().kind not in (lexer.VARIABLE, lexer.RIGHT, lexer.CLOSE):
                self.fail("range can only initialize variables")

    def check_pipeline(self, pipe: syntax.Pipe, context: str) -> None:
        if len(pipe.commands) == 1:
            return
        if not pipe.commands:
            self.fail(f"missing value for {context}")
        for stage, command in enumerate(pipe.commands[1:], 2):
            if isinstance(command.args[0], _LITERALS):
                self.fail(f"non executable command in pipeline stage {stage}")

    def command(self, token: Token) -> syntax.Command:
        """Parse the command that starts with this token."""
        command = syntax.Command(token.pos)
        while (operand := self.operand(token)) is not None:
            command.args.append(operand)
            token = self.peek()
            if not token.spaced:
                break
        if token.kind not in (lexer.RIGHT, lexer.CLOSE):
            self.next()
            if token.kind != lexer.PIPE:
                self.unexpected(token, "operand")
        if not command.args:
            self.fail("empty command")
        return command

    def operand(self, token: Token) -> syntax.Expression | None:
        """Parse the operand that starts with this token; None if none does."""
        if token.kind not in _OPERANDS:
            return None
        node = self.term(token)
        if (field := self.peek()).kind != lexer.FIELD or field.spaced:
            return node
        names: list[str] = []
        while (token := self.peek()).kind == lexer.FIELD and not token.spaced:
            names.append(self.next().text[1:])
        # the node stands at its second field: so do Go's error messages
        if isinstance(node, syntax.Field):
            return syntax.Field(field.pos, (*node.names, *names))
        if isinstance(node, syntax.Variable):
            return syntax.Variable(field.pos, node.name, (*node.names, *names))
        if isinstance(node, _LITERALS):
            self.fail(f"unexpected . after term {quote(str(node))}")
        return syntax.FieldChain(field.pos, node, tuple(names))

    def term(self, token: Token) -> syntax.Expression:
        kind, pos, text = token.kind, token.pos, token.text
        self.skip()
        if kind == lexer.FIELD:
            return syntax.Field(pos, (text[1:],))
        if kind == lexer.IDENTIFIER:
            if text not in self.shared.functions:
                self.fail(f"function {quote(text)} not defined")
            return syntax.Identifier(pos, text)
        if kind == lexer.VARIABLE:
            if text not in self.variables:
                self.fail(f"undefined variable {quote(text)}")
            return syntax.Variable(pos, text)
        if kind == lexer.OPEN:
            self.enter()
            pipe = self.pipeline("parenthesized pipeline", lexer.CLOSE)
            self.leave()
            return pipe
        return self.literal(kind, pos, text)

    def literal(self, kind: str, pos: int, text: str) -> syntax.Expression:
        if kind == lexer.DOT:
            return syntax.Dot(pos)
        if kind == "nil":
            return syntax.Nil(pos)
        if kind == lexer.BOOL:
            return syntax.Bool(pos, text == "true")
        if kind in (lexer.STRING, lexer.RAW_STRING):
            return syntax.StringLiteral(pos, text, self.unquote(text))
        if kind == lexer.COMPLEX or (kind == lexer.NUMBER and text.endswith("i")):
            self.fail(f"complex constants are not supported: {text}")
        try:
            return syntax.NumberLiteral(pos, parse_number(text))
        except ValueError as problem:
            self.fail(str(problem))
