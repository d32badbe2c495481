/** The forms of the name of one kind. */
export interface KindNames {
  /** `Website` */
  kind: string
  /** The name of the file, the function and its variable: `website`. */
  singular: string
  /** `websites` */
  plural: string
  /** `example.com` */
  group: string
}

/** A name that cannot be used. The message is one line with the fix. */
export class NameError extends Error {
  override readonly name = 'NameError'
}

const RESERVED = new Set(
  (
    'await break case catch class const continue debugger default delete do else enum eval export extends false finally for ' +
    'function if implements import in instanceof interface let new null package private protected public return static ' +
    'super switch this throw true try typeof undefined var void while with yield arguments'
  ).split(' '),
)
const LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/

export function namesOf({ kind, group, plural }: { kind: string; group: string; plural?: string }): KindNames {
  if (!/^[A-Z][A-Za-z0-9]{0,62}$/.test(kind))
    throw new NameError(
      `${JSON.stringify(kind)} is not a kind: begin with a capital letter, then letters and digits, e.g. Website`,
    )
  const singular = kind.toLowerCase()
  if (RESERVED.has(singular))
    throw new NameError(
      `${kind} cannot be the kind: ${singular} is a word of TypeScript. Choose another one, e.g. My${kind}`,
    )
  if (!group.includes('.') || group.length > 253 || !group.split('.').every((part) => LABEL.test(part)))
    throw new NameError(
      `${JSON.stringify(group)} is not an API group: give a domain that is yours, e.g. shops.example.com`,
    )
  const names = { kind, singular, plural: plural ?? pluralOf(singular), group }
  if (!LABEL.test(names.plural))
    throw new NameError(`${JSON.stringify(plural)} is not a plural: use a-z and 0-9, e.g. websites`)
  return names
}

/** Returns a plural by the rules that the API's own kinds follow. Users can specify another one. */
export function pluralOf(singular: string): string {
  if (/(s|x|z|ch|sh)$/.test(singular)) return `${singular}es`
  return /[^aeiou]y$/.test(singular) ? `${singular.slice(0, -1)}ies` : `${singular}s`
}

/** Returns a valid npm name for the name of a folder. */
export function projectName(folder: string): string {
  const name = folder
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/g, '-')
    .replaceAll(/^[-._]+|[-._]+$/g, '')
  if (name !== '' && name.length <= 214) return name
  throw new NameError(`${JSON.stringify(folder)} cannot be the name of a project: use letters and digits`)
}
