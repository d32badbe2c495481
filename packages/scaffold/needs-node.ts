// Imported before all others: their code must not run in an older Node.js.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < 24 || (major === 24 && minor < 12)) {
  const is = process.versions.node
  process.stderr.write(`create-fairlead: Node.js 24.12 or newer is needed, and this is ${is}: install it\n`)
  process.exit(2)
}
