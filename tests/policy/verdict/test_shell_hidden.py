"""Places where a command can hide from a reader of scripts, and shells run it all the same."""

from __future__ import annotations

import pytest

from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.verdict import CommandClass


def kind_of(script: str) -> CommandClass:
    return judge(script, cwd="/home/u/proj", home="/home/u").kind


@pytest.mark.parametrize(
    "script",
    [
        "cat <<E\n`rm -rf ~`\nE",
        "cat <<E\na $(ls) b `rm -rf ~`\nE",
        "cat <<-E\n\t$(rm -rf ~)\n\tE\nls",
        "cat <<E\n$\n$(rm -rf ~)\nE",
        "cat <<E\n\\\\$(rm -rf ~)\nE",
        "cat <<E\n${x:-`rm -rf ~`}\nE",
        "cat <<E; rm -rf ~\nt\nE\n",
        "cat <<E; ls\nt\nE\nrm -rf ~\n",
        "cat <<$E; rm -rf ~\n$E\n",
        "cat <<E\\ | rm -rf ~\nE\\\n",
        "cat <<'E'F\nE\nF\nEF\nrm -rf ~",
        "cat <<E|rm -rf ~ \\\n\nt\nE\n",
        "cat <<E\nx\\\nE\nE\nrm -rf ~",
        "cat <<A <<B\nA\nB\nrm -rf ~",
        "rm -rf<<E ~\nt\nE",
        "rm -r1<<E ~\nt\nE",
    ],
)
def test_a_document_hides_no_command(script: str) -> None:
    assert kind_of(script) >= CommandClass.UNKNOWN


@pytest.mark.parametrize(
    "script",
    [
        "cat <<E\ntext\nE",
        "cat <<E > f\n$x and \\`code\\`\nE",
        "cat > f <<'E'\n`code` $(text) <<F\n\\\nE",
        'cat <<"E F" | wc\nt\nE F\nls',
        "cat <<-E\n\ttext\n\tE",
        "cat <<\\E\n`x`\nE",
        "cat 3<<E\nt\nE",
        "cat <<E && ls\nt\nE",
        "cat <<EOF > a.txt 2>&1 # note\nEOF",
    ],
)
def test_an_everyday_document_is_understood(script: str) -> None:
    assert kind_of(script) < CommandClass.UNKNOWN


@pytest.mark.parametrize(
    "script",
    [
        "echo ${x:-`rm -rf ~`}",
        'echo "${x:-`rm -rf ~`}"',
        "echo \"${x:-'$(rm -rf ~)'}\"",
        "echo ${x#`rm -rf ~`}",
        "echo ${x:-$>(rm -rf ~)}",
        "echo ${x:-<(rm -rf ~)}",
        "echo `echo \\`rm -rf ~\\``",
        "echo `cat <<'E'\n`; rm -rf ~; `\nE\n`",
        "x='$(rm -rf ~)'; echo ${x@P}",
        "X=$ rm -rf ~",
        "X=$\nrm -rf ~",
        "echo $'\\''; echo 'a\nrm -rf ~\nb'",
        "echo $'a\\'b\nrm -rf ~\n'",
        "echo $'\\' ; rm -rf ~ #'",
        "echo $'a\\'b\"' | echo \"a\nrm -rf ~\nb\"",
        'tail "a $\\\n(rm -rf ~)"',
        "X='a'\\\n Y=c rm -rf ~",
        "X=\\\n rm -rf ~",
        "0>f rm -rf ~",
        "bash <<<'ls'\\;'rm -rf ~'",
        "rm -$'\\x72f' ~",
        "rm -?f ~",
        "env {fd}>f rm -rf ~",
        "{fd}>f rm -rf ~",
        "ls &>f rm -rf ~",
        "[[ -v 'a[$(rm -rf ~)]' ]]",
        "test -v 'a[$(rm -rf ~)]'",
        "let 'a[$(rm -rf ~)]'",
        "declare 'a[$(rm -rf ~)]=1'",
        "unset 'a[$(rm -rf ~)]'",
        "declare -a 'x=($(rm -rf ~))'",
        'declare -a "x=(\\$(rm -rf ~) $y)"',
        "printf -v 'a[$(rm -rf ~)]' x",
        "read 'a[`rm -rf ~`]' <<< x",
        "x='a[$(rm -rf ~)]'; ((x))",
        "PS4='$(rm -rf ~)'; set -x; ls",
        "export PS4='$(rm -rf ~)'; set -x; ls",
    ],
)
def test_an_expansion_hides_no_command(script: str) -> None:
    assert kind_of(script) >= CommandClass.UNKNOWN


@pytest.mark.parametrize(
    "script",
    [
        "alias x='rm -rf'\nx ~",
        "hash -p /bin/rm ls; ls -rf ~",
        "mapfile -C 'rm -rf ~ #' -c 1 <<< x",
        "compgen -W '$(rm -rf ~)'",
        ". /dev/stdin <<< 'rm -rf ~'",
        "source /dev/stdi? <<< 'rm -rf ~'",
        "source <(echo rm -rf '~')",
        "bash /dev/fd/3 3<<< 'rm -rf ~'",
        "bash --rcfile <(echo rm -rf '~') -i",
        "sh <<< ls <<< 'rm -rf ~'",
        "eval sh <<< 'rm -rf ~'",
        "bash -c sh <<< 'rm -rf ~'",
        "echo 'rm -rf ~' | bash -c sh",
        "(sh) <<< 'rm -rf ~'",
        "{ sh; } <<E\nrm -rf ~\nE",
        "exec <<< 'rm -rf ~'; sh",
        "bash <<E\n\\`rm -rf ~\\`\nE",
        "printf '%s\\n' 'rm -rf ~' | sh",
        "printf '%s -rf ~' rm | sh",
        "printf 'r\\155 -rf ~' | sh",
        "printf 'ls\\nrm -rf ~\\n' | sh",
        "echo -e 'r\\x6d -rf ~' | sh",
        "echo -n 'rm -rf ~' | sh",
        "env - rm -rf ~",
        "env -S 'rm -rf' /home/u",
        "env -S 'rm -rf' $x",
        "su - root -c 'rm -rf /'",
        "- rm -rf ~",
        "time X[a b]=1 rm -rf ~",
        "time X[0]=1 rm -rf ~",
        "X[a b]=1 rm -rf ~",
        "coproc { rm -rf /\nls\n}",
        "coproc X { rm -rf /\nls\n}",
        "repeat 2 rm -rf ~",
        "echo rm | xargs -I{} {} -rf ~",
        "echo rm | xargs -I % % -rf ~",
        "find . -exec rm + -rf ~ \\;",
        "find . -exec$x rm -rf ~ \\;",
        "find . ${x}-delete",
        "env -S 'rm\\_-rf\\_/'",
    ],
)
def test_a_command_that_runs_another_hides_none(script: str) -> None:
    assert kind_of(script) >= CommandClass.UNKNOWN


@pytest.mark.parametrize(
    "script",
    [
        "echo ls | sh",
        "printf 'ls\\n' | bash",
        "printf '%s\\n' ls | bash",
        "source ~/.bashrc",
        '. "$(dirname "$0")/env.sh"',
        "find . -name a -exec wc -l {} +",
        "xargs -I{} cp {} a",
        "ls &> f 2>&1",
        "X=a \\\n  Y='c d' \\\n  make test",
        "env -S 'python3 -u' a.py",
        "git commit -m $'don\\'t\\nworry'",
        "echo `date` ${x:-a} \"${x:-'a'}\" $((1 + 2)) ${#x} \"\\`x\\`\" '`'",
        "read -r x <<< a",
        "declare -a x=($(ls)); export y=$(ls)",
        'export PATH="$HOME/bin:$PATH"',
        "test -f a && [ -n \"$x\" ] && [[ $x == 'a b' ]]",
    ],
)
def test_everyday_commands_are_still_understood(script: str) -> None:
    assert kind_of(script) < CommandClass.UNKNOWN
