# The formula of a tap. `make release` puts the version and the hash in; then
# `brew update-python-resources toolrest` adds the packages that it needs.
class Toolrest < Formula
  include Language::Python::Virtualenv

  desc "Tool system of a coding agent: validate, decide, sandbox, run and answer calls"
  homepage "https://pypi.org/project/toolrest/"
  url "https://files.pythonhosted.org/packages/source/t/toolrest/toolrest-VERSION.tar.gz"
  sha256 "SHA256"
  license "Apache-2.0"

  depends_on "rust" => :build # some packages have no wheel for every machine
  depends_on "python@3.13"
  depends_on "ripgrep"

  on_linux do
    depends_on "bubblewrap"
  end

  def install
    virtualenv_install_with_resources
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/toolrest --version")
    system bin/"toolrest", "demo"
  end
end
