import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { KubeObject } from '#contracts'
import { SYSTEM_NAMESPACE } from '#spec'

export const DEPLOY = join(import.meta.dirname, '../../deploy')

interface Kustomization {
  patches?: { target: { kind: string; name?: string }; patch: string }[]
}

/** Returns the objects in files of deploy/, in the namespace of their kustomizations. */
export async function manifestsIn(...paths: string[]): Promise<KubeObject[]> {
  const { parseAllDocuments } = await import('yaml')
  const texts = await Promise.all(paths.map(textOf))
  // YAML 1.1, as Kubernetes reads it: 0440 is an octal number.
  const documents = texts.flatMap((text) => parseAllDocuments(text, { version: '1.1' }))
  // The copy replaces shared anchors of the files by separate objects.
  const objects = documents.map((one) => JSON.parse(JSON.stringify(one)) as KubeObject)
  return objects.map((object) => ({ ...object, metadata: { ...object.metadata, namespace: SYSTEM_NAMESPACE } }))
}

export const textOf = (path: string): Promise<string> => readFile(join(DEPLOY, path), 'utf8')

/** Returns the object with that kind and name. */
export function objectOf(objects: readonly KubeObject[], kind: string, name: string): KubeObject {
  const found = objects.find((one) => one.kind === kind && one.metadata.name === name)
  if (found === undefined) throw new TypeError(`deploy/ has no ${kind} ${name}`)
  return found
}

/** Returns copies of the objects with the patches of a kustomization. */
export async function patched(objects: readonly KubeObject[], path: string): Promise<KubeObject[]> {
  const { parse } = await import('yaml')
  const { patches = [] } = parse(await textOf(path)) as Kustomization
  const copies = structuredClone([...objects])
  for (const { target, patch } of patches)
    for (const object of copies)
      if (object.kind === target.kind && (target.name ?? object.metadata.name) === object.metadata.name)
        for (const { op, path: at, value } of parse(patch) as { op: string; path: string; value: unknown }[]) {
          if (op !== 'add' && op !== 'replace')
            throw new TypeError(`the patch ${op} ${at} of ${path} is not known here`)
          set(object, at.slice(1), value)
        }
  return copies
}

type Node = Record<string, unknown>

/** Reads a path such as `spec/template/spec/containers/0/image`. */
export const get = (object: object, path: string): unknown =>
  path.split('/').reduce<unknown>((at, key) => (at as Node | undefined)?.[key], object)

/** Sets the value at a path; `-` at the end appends to a list. */
export function set(object: object, path: string, value: unknown): void {
  const keys = path.split('/')
  const last = keys.pop() ?? ''
  const parent = keys.length === 0 ? object : get(object, keys.join('/'))
  if (Array.isArray(parent) && last === '-') parent.push(value)
  else (parent as Node)[last] = value
}
