import { writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { ResourceRef } from '#contracts'
import { At, at } from '#functions/at'
import { Memcached, memcached } from '#functions/memcached'
import type { Reconciler, Resource } from '#sdk'

/** The operator with this number: an At or a Memcached under another name, for a kind of its own. */
export interface Operator {
  number: number
  is: 'At' | 'Memcached'
  kind: string
  ref: ResourceRef
}

export const operators = (count: number): Operator[] =>
  Array.from({ length: count }, (_, number) => {
    const is = number % 2 === 0 ? 'At' : 'Memcached'
    const { kind, resource, group, version } = copyOf(is === 'At' ? At : Memcached, number)
    return { number, is, kind, ref: { group, version, resource } }
  })

/** For the module that writeFunctions() has written. */
export const functionOf = (number: number): Reconciler => {
  const { name, for: resource, ...rest } = number % 2 === 0 ? at : memcached
  return { ...rest, name: `${name}-${number}`, for: copyOf(resource, number) }
}

function copyOf(one: Pick<Resource, keyof Resource>, number: number): Resource {
  const [kind, resource] = [`${one.kind}${number}`, `${one.resource}${number}`]
  const crd = () => {
    const { metadata, spec, ...rest } = one.crd()
    const names = { ...spec.names, kind, plural: resource, singular: kind.toLowerCase(), listKind: `${kind}List` }
    return {
      ...rest,
      metadata: { ...metadata, name: `${resource}.${one.group}` },
      spec: { ...spec, names: { ...names, shortNames: [] } },
    }
  }
  return { ...one, kind, resource, crd }
}

/** Writes the module that `fairlead` is given: a process loads all exports of its modules. */
export async function writeFunctions(file: string, count: number): Promise<void> {
  const own = fileURLToPath(import.meta.url)
  const lines = Array.from({ length: count }, (_, number) => `export const f${number} = functionOf(${number})\n`)
  await writeFile(file, `import { functionOf } from ${JSON.stringify(own)}\n${lines.join('')}`)
}
