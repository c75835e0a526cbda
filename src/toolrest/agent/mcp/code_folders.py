"""Folders whose files other programs run: a server is never given one of them to write in."""

from __future__ import annotations

from toolrest.policy.paths.hidden import home_folders
from toolrest.policy.paths.names import both_forms, fold, inside
from toolrest.policy.paths.protected import HOME_FILES, NAMES

_NAMES = frozenset(
    (
        *(*NAMES, ".git", ".githooks", ".husky", "bin", "sbin", ".bin", "autostart", "systemd"),
        *(".idea", ".zed", ".cursor", ".claude", ".gemini", ".devcontainer", ".direnv"),
    )
)
"""Names of such folders, wherever they are."""
_ENDINGS = (".git", ".d")
"""Bare repositories, and folders of start-up snippets such as `.bashrc.d`."""
_PACKAGES = ("site-packages", "dist-packages", "node_modules")
"""Folders of every package; that of one package, a server's own, may be asked about."""
_IN_HOME = (
    # Shells
    *(".oh-my-zsh", ".oh-my-bash", ".zsh", ".zim", ".zprezto", ".antigen", ".zinit", ".bash_it"),
    *(".config/zsh", ".config/bash", ".config/nushell", ".local/share/fish", ".local/share/zinit"),
    # Desktops
    *(".config/autostart-scripts", ".config/plasma-workspace", ".config/upstart", ".config/i3"),
    *(".config/sway", ".config/hypr", ".config/dconf", ".local/share/applications", ".kde"),
    *(".local/share/dbus-1", ".local/share/nautilus", ".local/share/gnome-shell"),
    *(".local/share/plasma", ".local/share/kio", "Applications", "Library/Application Scripts"),
    *("Library/Services", "Library/QuickLook", "Library/Scripts"),
    # Editors
    *(".vscode-server", ".vscode-oss", ".vscode-insiders", ".cursor-server", ".windsurf"),
    *(".vim", ".emacs.d", ".config/emacs", ".config/nvim", ".local/share/nvim", ".config/zed"),
    *(".local/share/zed", ".config/Code", ".config/Cursor", ".config/VSCodium"),
    *(".config/JetBrains", ".local/share/JetBrains", ".config/sublime-text"),
    *("Library/Application Support/Code", "Library/Application Support/Cursor"),
    *("Library/Application Support/Zed", "Library/Application Support/JetBrains"),
    # Languages and their tools
    *(".local/lib", ".local/pipx", ".local/share/pipx", ".local/share/uv", ".local/share/mise"),
    *(".cargo", ".rustup", ".pyenv", ".nvm", ".rbenv", ".asdf", ".sdkman", ".volta", ".deno"),
    *(".bun", ".ipython", ".jupyter", ".gradle", ".m2", ".config/direnv", ".config/mise"),
    *(".config/containers", ".docker", ".tmux", ".config/tmux", "Library/Python"),
)
"""Start-up files, extensions and installed programs in a user's home."""


def is_code_folder(folder: str) -> bool:
    """Whether other programs run what lies in a folder, or in a part of it."""
    folder = fold(folder)
    names = folder.split("/")
    if names[-1] in _PACKAGES or any(n in _NAMES or n.endswith(_ENDINGS) for n in names):
        return True
    places = (f"{home}/{name}" for home in home_folders() for name in (*HOME_FILES, *_IN_HOME))
    forms = (fold(form) for place in places for form in both_forms(place))
    return any(inside(folder, form) or inside(form, folder) for form in forms)
