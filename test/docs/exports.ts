import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type Class, type Comment, type ParseResult, parseSync, type Statement } from 'oxc-parser'
import packageJson from '../../package.json' with { type: 'json' }

/** An export of a module of the package, as its source declares it. */
export interface Export {
  name: string
  file: string
  /** The doc comment without its example; empty: it has none. */
  about: string
  /** The code after `@example`. */
  example: string | undefined
  /** The declaration without bodies of functions. */
  signature: string
}

/** As in `exports` of package.json. */
export type Module = '.' | './events' | './helm' | './testing' | './testing/cluster'

/** Everything that a module of the package exports, sorted by name. */
export function exportsOf(module: Module): Export[] {
  const entry = packageJson.exports[module]
  return [...exportsIn(join(entry))].toSorted((one, other) => (one.name < other.name ? -1 : 1))
}

const parsed = new Map<string, { text: string } & Pick<ParseResult, 'program' | 'comments'>>()

function parse(file: string) {
  const known = parsed.get(file)
  if (known !== undefined) return known
  const text = readFileSync(file, 'utf8')
  const { program, comments } = parseSync(file, text)
  const found = { text, program, comments }
  parsed.set(file, found)
  return found
}

function* exportsIn(file: string): Generator<Export> {
  for (const statement of parse(file).program.body) {
    if (statement.type !== 'ExportNamedDeclaration') continue
    if (statement.source === null) yield* declaredBy(statement, file)
    for (const { exported } of statement.source === null ? [] : statement.specifiers) {
      const name = 'name' in exported ? exported.name : exported.value
      const target = fileOf(file, statement.source?.value ?? '')
      if (target === undefined) yield describe(name, file, statement, `export { ${name} }`)
      else yield* [...exportsIn(target)].filter((one) => one.name === name)
    }
  }
}

function* declaredBy(statement: Statement, file: string): Generator<Export> {
  if (statement.type !== 'ExportNamedDeclaration' || statement.declaration === null) return
  const { declaration } = statement
  const { text } = parse(file)
  if (declaration.type === 'VariableDeclaration')
    for (const { id, init } of declaration.declarations) {
      const value = init?.type === 'ArrowFunctionExpression' ? init.body : init
      const until = value?.type === 'CallExpression' && init === value ? value.end : (value?.start ?? declaration.end)
      if (id.type === 'Identifier') yield describe(id.name, file, statement, text.slice(declaration.start, until))
    }
  else if ('id' in declaration && declaration.id !== null && 'name' in declaration.id) {
    const { type, start, end } = declaration
    const until = type === 'FunctionDeclaration' ? (declaration.body?.start ?? end) : end
    const signature = type === 'ClassDeclaration' ? classOf(declaration, text) : text.slice(start, until)
    yield describe(declaration.id.name, file, statement, signature)
  }
}

/** The class with its public members, their comments, and no bodies. */
function classOf({ start, body }: Class, text: string): string {
  const members = body.body.flatMap((member, index) => {
    if (!('key' in member) || member.key.type === 'PrivateIdentifier') return []
    const from = body.body[index - 1]?.end ?? body.start + 1
    const until =
      'value' in member && member.value !== null && 'body' in member.value ? member.value.body?.start : undefined
    return [text.slice(from, until ?? member.end).replace(/^\s*\n|\s+$/g, '')]
  })
  return `${text.slice(start, body.start)}{\n${members.join('\n')}\n}`
}

function describe(name: string, file: string, { start }: Statement, signature: string): Export {
  const { text, comments } = parse(file)
  const comment = comments.findLast((one) => one.end <= start && text.slice(one.end, start).trim() === '')
  const [about = '', example] = textOf(comment).split(/^@example\n/m)
  return { name, file, about: about.trim(), example, signature: signature.replace(/\s*(?:=>|=)?\s*$/, '') }
}

const textOf = (comment: Comment | undefined): string =>
  comment?.type === 'Block' && comment.value.startsWith('*')
    ? comment.value
        .slice(1)
        .replaceAll(/^[ \t]*\* ?/gm, '')
        .trim()
    : ''

/** Undefined: a package. */
function fileOf(from: string, specifier: string): string | undefined {
  if (specifier.startsWith('.')) return join(dirname(from), specifier)
  const target = (packageJson.imports as Record<string, string>)[specifier]
  return target === undefined ? undefined : join(target)
}
