"""Parse tokens into syntax trees, with Go's grammar and messages.

Nesting is limited to MAX_NESTING, so that hostile text causes an error instead of exhausting Python's stack.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NoReturn

from netinit.golang.errors import TemplateError
from netinit.golang.template import lexer
from netinit.golang.template import nodes as syntax
from netinit.golang.template.lexer import Kind, Token, tokenize
from netinit.golang.template.literals import parse_number, quote, unquote

MAX_NESTING: Final = 100

_OPERANDS: Final = frozenset((
    "bool", "dot", "field", "identifier", "nil", "number", "raw string", "string", "variable", "(",
))  # fmt: skip
_CONTROLS: Final = lexer.KEYWORDS - {"nil", "define"}
_LITERALS: Final = (syntax.Dot, syntax.Literal)
_LAST: Final = frozenset(("EOF", "error"))
"""Kinds of tokens that are never consumed, because no other follows."""


def parse(
    name: str, text: str, delimiters: tuple[str, str], functions: Collection[str]
) -> tuple[dict[str, syntax.Tree], dict[str, int]]:
    """Return the templates that the text defines, by name, and the functions that it names, with their first positions.

    The text itself is the template `name`. Raises TemplateError.
    """
    parser = _Parser(name, text, delimiters, functions)
    parser.parse_text()
    return parser.trees, parser.called


class _Parser:
    """A position in the tokens, and the state of the tree that is parsed there.

    Errors are reported at the line of the last token that was looked at for this tree.
    """

    def __init__(self, name: str, text: str, delimiters: tuple[str, str], functions: Collection[str]) -> None:
        self.name, self.text, self.delimiters, self.functions = name, text, delimiters, functions
        words = frozenset(word for word in ("break", "continue") if word in functions)
        self.tokens = tokenize(text, *delimiters, words)
        self.trees: dict[str, syntax.Tree] = {}
        self.called: dict[str, int] = {}
        self.at, self.read, self.nesting = 0, -1, 0
        self.begin_tree(name)

    def begin_tree(self, name: str) -> dict[str, Any]:
        """Begin another tree; return the state of this one."""
        before = vars(self).copy()
        self.looked_at: Token | None = None
        self.action_at: Token | None = None
        self.tree = syntax.Tree(name, self.name, self.text)
        self.variables = ["$"]
        self.visible = [syntax.ROOT]  # when the template is executed: one declared in {{if}} is not visible in its {{else}}
        self.ranges = 0
        return before

    def resume_tree(self, before: dict[str, Any]) -> None:
        """Continue with the tree that another one interrupted."""
        vars(self).update({**before, "at": self.at, "read": self.read, "nesting": self.nesting})

    # --- tokens ---

    def peek(self) -> Token:
        """Return the next token without consuming it."""
        token = self.tokens[self.at]
        if self.at > self.read:
            self.read, self.looked_at = self.at, token
        return token

    def next(self) -> Token:
        """Consume and return the next token."""
        token = self.peek()
        if token.kind not in _LAST:
            self.at += 1
        return token

    def expect(self, kind: Kind, context: str) -> Token:
        """Consume the next token. Raises TemplateError if it is of another kind."""
        token = self.next()
        if token.kind != kind:
            self.unexpected(token, context)
        return token

    def fail(self, message: str) -> NoReturn:
        """Raise TemplateError at the line of the last token that was looked at."""
        raise TemplateError(f"template: {self.name}:{self.line_of(self.looked_at)}: {message}")

    def line_of(self, token: Token | None) -> int:
        """Return a token's line, counted from 1; 0 for None."""
        return 0 if token is None else self.text.count("\n", 0, token.pos) + 1

    def unexpected(self, token: Token, context: str) -> NoReturn:
        """Raise TemplateError about the token."""
        if token.kind != "error":
            self.fail(f"unexpected {token} in {context}")
        extra = ""
        action_line = self.line_of(self.action_at)
        if action_line not in (0, self.line_of(token)):
            started = f" started at {self.name}:{action_line}"
            extra = started if token.text.endswith(" action") else f" in action{started}"
        self.fail(f"{token}{extra}")

    def enter(self) -> None:
        """Enter a block or parenthesis. Raises TemplateError if the nesting is too deep."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(f"blocks and parentheses are nested deeper than {MAX_NESTING} levels")

    # --- lists ---

    def parse_text(self) -> None:
        while (token := self.peek()).kind != "EOF":
            if token.kind == "left delimiter":
                before = self.at
                self.at += 1
                if self.next().kind == "define":
                    self.parse_definition()
                    continue
                self.at = before
            node = self.text_or_action(token)
            if isinstance(node, str):
                self.fail(f"unexpected {self.shown(node)}")
            self.tree.body.append(node)
        self.add()

    def parse_definition(self) -> None:
        context = "define clause"
        outer = self.begin_tree("definition")
        token = self.next()
        self.tree.name = self.template_name(token, context)
        self.expect("right delimiter", context)
        self.tree.body, end = self.item_list()
        if end != "end":
            self.fail(f"unexpected {self.shown(end)} in {context}")
        self.add()
        self.resume_tree(outer)

    def shown(self, word: str) -> str:
        return f"{self.delimiters[0]}{word}{self.delimiters[1]}"

    def add(self) -> None:
        old = self.trees.get(self.tree.name)
        if old is None or syntax.is_empty(old.body):
            self.trees[self.tree.name] = self.tree
        elif not syntax.is_empty(self.tree.body):
            self.fail(f"template: multiple definition of template {quote(self.tree.name)}")

    def item_list(self) -> tuple[list[syntax.Node], str]:
        """Parse nodes up to {{end}} or {{else}}; return them and that word."""
        self.peek()
        self.enter()
        outer, self.visible = self.visible, self.visible.copy()
        nodes: list[syntax.Node] = []
        while True:
            token = self.peek()
            if token.kind == "EOF":
                self.fail("unexpected EOF")
            node = self.text_or_action(token)
            if isinstance(node, str):
                self.nesting -= 1
                self.visible = outer
                return nodes, node
            nodes.append(node)

    def text_or_action(self, token: Token) -> syntax.Node | str:
        """Parse the node that starts with this token; return "end" or "else" for those."""
        if token.kind == "text":
            self.at += 1
            return syntax.Text(token.pos, token.text)
        if token.kind != "left delimiter":
            self.unexpected(token, "input")
        self.at += 1
        self.action_at = token
        node = self.action()
        self.action_at = None
        return node

    # --- actions ---

    def action(self) -> syntax.Node | str:
        token = self.peek()
        if token.kind in _CONTROLS:
            self.at += 1
            found: syntax.Node | str = getattr(self, f"{token.kind}_control")(token)
            return found
        return syntax.Action(token.pos, self.pipeline("command", "right delimiter"), self.delimiters)

    def break_control(self, token: Token) -> syntax.LoopControl:
        word = f"{{{{{token.kind}}}}}"
        closing = self.next()
        if closing.kind != "right delimiter":
            self.unexpected(closing, word)
        if not self.ranges:
            self.fail(f"{word} outside {{{{range}}}}")
        return syntax.LoopControl(token.pos, token.kind)

    continue_control = break_control

    def end_control(self, token: Token) -> str:
        self.expect("right delimiter", "end")
        return token.kind

    def else_control(self, token: Token) -> str:
        if self.peek().kind not in ("if", "with"):
            self.expect("right delimiter", "else")
        return token.kind

    def if_control(self, token: Token) -> syntax.Block:
        """Parse {{if}}, {{with}} or {{range}} up to its {{end}}."""
        mark, outer = len(self.variables), self.visible
        self.visible = outer.copy()
        word = token.kind
        branches: list[tuple[syntax.Pipe, list[syntax.Node]]] = []
        otherwise: list[syntax.Node] = []
        while True:
            pipe = self.pipeline(word, "right delimiter")
            self.ranges += word == "range"
            body, end = self.item_list()
            self.ranges -= word == "range"
            branches.append((pipe, body))
            if end == "end":
                break
            if self.peek().kind != word:
                otherwise, end = self.item_list()
                if end != "end":
                    self.fail(f"expected end; found {self.shown(end)}")
                break
            self.next()
        del self.variables[mark:]
        self.visible = outer
        found = syntax.Block(word, branches, otherwise)
        if word == "range" and pipe.variables and not pipe.assigns:
            pipe.variables[-1].loop = found
        return found

    with_control = range_control = if_control

    def block_control(self, _token: Token) -> syntax.Invoke:
        context = "block clause"
        token = self.next()
        name = self.template_name(token, context)
        pipe = self.pipeline(context, "right delimiter")
        outer = self.begin_tree(name)
        self.tree.body, end = self.item_list()
        if end == "end":
            self.add()
        self.resume_tree(outer)
        if end != "end":
            self.fail(f"unexpected {self.shown(end)} in {context}")
        return syntax.Invoke(token.pos, name, pipe, self.delimiters)

    def template_control(self, _token: Token) -> syntax.Invoke:
        context = "template clause"
        token = self.next()
        name = self.template_name(token, context)
        pipe = None
        if self.peek().kind == "right delimiter":
            self.next()
        else:
            pipe = self.pipeline(context, "right delimiter")
        return syntax.Invoke(token.pos, name, pipe, self.delimiters)

    def template_name(self, token: Token, context: str) -> str:
        if token.kind not in ("string", "raw string"):
            self.unexpected(token, context)
        return self.unquote(token.text)

    def unquote(self, literal: str) -> str:
        try:
            return unquote(literal)
        except ValueError as problem:
            self.fail(str(problem))

    # --- pipelines ---

    def pipeline(self, context: str, end: Kind) -> syntax.Pipe:
        token = self.peek()
        pipe = syntax.Pipe(token.pos)
        if token.kind == "variable":
            self.declarations(pipe, context)
        while True:
            token = self.peek()
            if token.kind == end:
                self.at += 1
                self.check_pipeline(pipe, context)
                for variable in pipe.variables:  # not before: the value cannot refer to them
                    variable.declared = self.find(variable.text) if pipe.assigns else variable
                self.visible += [] if pipe.assigns else pipe.variables
                return pipe
            if token.kind not in _OPERANDS:
                self.next()
                self.unexpected(token, context)
            pipe.commands.append(self.command(token))

    def find(self, name: str) -> syntax.Variable | None:
        """Return the declaration of the innermost visible variable with this name."""
        return next((variable for variable in reversed(self.visible) if variable.text == name), None)

    def declarations(self, pipe: syntax.Pipe, context: str) -> None:
        while (variable := self.peek()).kind == "variable":
            before = self.at
            self.at += 1
            follower = self.peek()
            comma = follower.kind == "character" and follower.text == ","
            if not comma and follower.kind not in ("=", ":="):
                self.at = before
                return
            self.next()
            pipe.variables.append(syntax.Variable(variable.pos, variable.text))
            self.variables.append(variable.text)
            if not comma:
                pipe.assigns = follower.kind == "="
                return
            if context != "range" or len(pipe.variables) > 1:
                self.fail(f"too many declarations in {context}")
            if self.peek().kind not in ("variable", "right delimiter", ")"):
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
        if token.kind not in ("right delimiter", ")"):
            self.next()
            if token.kind != "|":
                self.unexpected(token, "operand")
        if not command.args:
            self.fail("empty command")
        return command

    def operand(self, token: Token) -> syntax.Expression | None:
        """Parse the operand that starts with this token; None if none does."""
        if token.kind not in _OPERANDS:
            return None
        node = self.term(token)
        if (field := self.peek()).kind != "field" or field.spaced:
            return node
        names: list[str] = []
        while (token := self.peek()).kind == "field" and not token.spaced:
            names.append(self.next().text[1:])
        if isinstance(node, _LITERALS):
            self.fail(f"unexpected . after term {quote(str(node))}")
        # the node stands at its second field: so do Go's error messages
        base, before = (node.base, node.names) if isinstance(node, syntax.Fields) else (node, ())
        return syntax.Fields(field.pos, base, (*before, *names))

    def term(self, token: Token) -> syntax.Expression:
        kind, pos, text = token.kind, token.pos, token.text
        self.at += 1
        if kind == "field":
            return syntax.Fields(pos, syntax.Dot(pos, "."), (text[1:],))
        if kind == "identifier":
            if text not in self.functions:
                self.fail(f"function {quote(text)} not defined")
            self.called.setdefault(text, pos)
            return syntax.Identifier(pos, text)
        if kind == "variable":
            if text not in self.variables:
                self.fail(f"undefined variable {quote(text)}")
            return syntax.Variable(pos, text, self.find(text))
        if kind == "(":
            self.enter()
            pipe = self.pipeline("parenthesized pipeline", ")")
            self.nesting -= 1
            return pipe
        return self.literal(kind, pos, text)

    def literal(self, kind: Kind, pos: int, text: str) -> syntax.Expression:
        if kind == "dot":
            return syntax.Dot(pos, text)
        if kind in ("nil", "bool"):
            return syntax.Literal(pos, text, None if kind == "nil" else text == "true")
        if kind in ("string", "raw string"):
            return syntax.Literal(pos, text, self.unquote(text))
        if text.endswith("i"):
            self.fail(f"complex constants are not supported: {text}")
        try:
            return syntax.Literal(pos, text, parse_number(text))
        except ValueError as problem:
            self.fail(str(problem))
