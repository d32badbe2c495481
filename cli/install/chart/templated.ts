import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { KubeObject } from '#contracts'
import type { CustomResourceDefinition } from '#sdk'
import { SYSTEM_NAMESPACE } from '#spec'

/** The place of a template expression in the YAML. */
interface Place {
  /** The spaces before the key or the dash. */
  indent: string
  key: string
  /** `- ` for an item of a list. */
  dash: string
}

type Piece = (place: Place) => string

const TOKEN = /^( *)((?:- )*)(?:([\w./-]+|"[^"]*"): )?TEMPLATE(\d+)END$/gm
const INLINE = /TEMPLATE(\d+)END/g

/** Objects in which some values are Helm template expressions. */
export class Templated {
  readonly #pieces: Piece[] = []

  /** Returns a placeholder for `{{ … }}` in place of a value, or of a part of it. */
  value(expression: string): string {
    return this.#token(({ indent, dash, key }) => `${indent}${dash}${key === '' ? '' : `${key}: `}{{ ${expression} }}`)
  }

  /** Returns a placeholder for a structure of the chart's values. While the value is empty, the key is left out. */
  optional(path: string): string {
    return this.#token(({ indent, key }) =>
      [
        `${indent}{{- with ${path} }}`,
        `${indent}${key}:`,
        `${indent}  {{- toYaml . | nindent ${indent.length + 2} }}`,
        `${indent}{{- end }}`,
      ].join('\n'),
    )
  }

  /** Returns a placeholder for a structure of the chart's values. */
  structure(path: string): string {
    return this.#token(
      ({ indent, key }) => `${indent}${key}:\n${indent}  {{- toYaml ${path} | nindent ${indent.length + 2} }}`,
    )
  }

  /** Returns a placeholder for items of a list, given as lines without indentation. */
  items(...lines: string[]): string {
    return this.#token(({ indent }) => lines.map((line) => `${indent}${line}`).join('\n'))
  }

  /** Returns the objects as YAML, with the expressions in place of their placeholders. */
  async render(objects: readonly object[], condition?: string): Promise<string> {
    const text = escaped(await yamlOf(objects)).replaceAll(
      TOKEN,
      (_, indent: string, dash: string, key = '', index: string) => this.#piece(index)({ indent, dash, key }),
    )
    const whole = text.replaceAll(INLINE, (_, index: string) => this.#piece(index)({ indent: '', dash: '', key: '' }))
    return condition === undefined ? whole : `{{- if ${condition} }}\n${whole.trimEnd()}\n{{- end }}\n`
  }

  #token(piece: Piece): string {
    this.#pieces.push(piece)
    return `TEMPLATE${this.#pieces.length - 1}END`
  }

  #piece(index: string): Piece {
    const piece = this.#pieces[Number(index)]
    if (piece === undefined) throw new TypeError(`no piece ${index}`)
    return piece
  }
}

/** Escapes braces in descriptions, which Helm would evaluate. */
const escaped = (text: string): string => text.replaceAll('{{', '{{ "{{" }}')

export interface ChartFile {
  name: string
  /** The semantic version of the chart and of its contents. */
  version: string
  description: string
}

/** Returns Chart.yaml. */
export const chartFile = ({ name, version, description }: ChartFile): Promise<string> =>
  yamlOf({
    apiVersion: 'v2',
    name,
    description,
    type: 'application',
    version,
    appVersion: version,
    kubeVersion: '>=1.30.0-0',
    annotations: { 'artifacthub.io/category': 'integration-delivery', 'artifacthub.io/operator': 'true' },
  })

export const DEPLOY = join(import.meta.dirname, '../../../deploy')

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
  // YAML 1.1, as above.
  for (const { target, patch } of patches)
    for (const object of copies)
      if (object.kind === target.kind && (target.name ?? object.metadata.name) === object.metadata.name)
        for (const { op, path: at, value } of parse(patch, { version: '1.1' }) as {
          op: string
          path: string
          value: unknown
        }[]) {
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

/**
 * Returns definitions as templates, since Helm never upgrades files in crds/. An uninstallation keeps them: deleting a
 * definition deletes all its objects.
 */
export function definitionTemplates(crds: readonly CustomResourceDefinition[]): Promise<string> {
  const template = new Templated()
  const kept = template.items(
    '{{- if .Values.crds.keep }}',
    'annotations:',
    '  helm.sh/resource-policy: keep',
    '{{- end }}',
  )
  const objects = crds.map((crd) => ({ ...crd, metadata: { ...crd.metadata, annotations: kept } }))
  return template.render(objects, '.Values.crds.enabled')
}

/** Returns YAML for kubectl, with several objects as several documents. The YAML package is loaded on demand. */
export async function yamlOf(content: object | readonly object[]): Promise<string> {
  const { stringify } = await import('yaml')
  const documents = [content].flat().map((object) => stringify(object, { lineWidth: 0 }))
  return documents.join('---\n')
}

/** Returns the items of an option whose value is a list of names. */
export const optionOf = (option: string, value: string): string[] => [
  `{{- with .Values.${value} }}`,
  `- ${option}`,
  '- {{ join "," . | quote }}',
  '{{- end }}',
]
