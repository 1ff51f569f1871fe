"""Finds shell in prose: commands that go over several lines, and the script that stands around one."""
import re
import shlex

# What a line of these documents' scripts begins with. A document's prose never does.
SHELL_LINE = re.compile(
    r"""^\s*(
        \#(?!\s*$)              # comment or #!
      | (export|unset|set|source|exec|echo|test|trap|sysctl|printf|if|then|else|fi|for|do|done|mkdir|cd)\b
      | [A-Za-z_][A-Za-z0-9_]*\+?=   # assignment
      | :\s                     # the shell's way to check a variable
      | ['"]                    # a word carried over from the line before
      | \)"?\s*$                # the end of $( ) or of an array
      | \}\s*$
    )""", re.VERBOSE)
FENCE = re.compile(r"^\s*(```|~~~)")


def is_shell_line(line):
    return not line.strip() or (bool(SHELL_LINE.match(line)) and not FENCE.match(line))


def command_end(lines, start):
    """Index behind the last line of the command that begins on line `start`: backslashes and quotes carry it on."""
    quote, at = "", start
    while at < len(lines):
        line, column, carried = lines[at], 0, False
        while column < len(line):
            c = line[column]
            if quote:
                if c == "\\" and quote == '"':
                    column += 1
                elif c == quote:
                    quote = ""
            elif c in "'\"":
                quote = c
            elif c == "\\":
                carried = column + 1 >= len(line.rstrip()) and not line[column + 1:].strip()
                column += 1
            elif c == "#" and (column == 0 or line[column - 1].isspace()):
                break
            column += 1
        at += 1
        if not quote and not carried:
            return at
    return at


def words_of(text):
    """The command's words as a shell splits them; $VARIABLES stay as they are. ValueError if quotes don't close."""
    return shlex.split(text.replace("\\\n", " "), comments=False)


def script_start(lines, command, floor):
    """First line of the script in which the command on line `command` stands; never before line `floor`."""
    for at in range(command - 1, floor - 1, -1):
        if lines[at].startswith("#!"):
            return at
        # What lies inside a quote or a continued command has no shell look of its own.
        if not is_shell_line(lines[at]) and not (at > floor and lines[at - 1].rstrip().endswith("\\")):
            return skip_blank(lines, at + 1)
    return skip_blank(lines, floor)


def skip_blank(lines, at):
    while at < len(lines) and not lines[at].strip():
        at += 1
    return at


def options_of(words):
    """{option: [values]} of a command's words; --a=b as --a b. What precedes the first option is under ''."""
    options, name = {"": []}, ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            options.setdefault(name, [])
            if equals:
                options[name].append(value)
        else:
            options[name].append(word)
    return options
