import { type KindNames, NameError } from './names.ts'
import type { Files } from './project.ts'

/** The used fields of a CustomResourceDefinition. */
export interface Definition {
  metadata: { name: string }
  spec: {
    group: string
    names: { kind: string; plural: string }
    scope: string
    versions: { name: string; served: boolean; storage: boolean; schema?: { openAPIV3Schema?: Schema } }[]
  }
}

export interface ExistingKind {
  names: Omit<KindNames, 'singular'>
  version: string
  isNamespaced: boolean
  schema: Schema
}

/** Returns the kind with its storage version if that is served; otherwise with the last served version. */
export function existingKind({ metadata, spec }: Definition): ExistingKind {
  const served = spec.versions.filter((version) => version.served)
  const version = served.find(({ storage }) => storage) ?? served.at(-1)
  if (version === undefined) throw new NameError(`the definition ${metadata.name} serves no version`)
  const { kind, plural } = spec.names
  return {
    names: { kind, plural, group: spec.group },
    version: version.name,
    isNamespaced: spec.scope === 'Namespaced',
    schema: version.schema?.openAPIV3Schema ?? {},
  }
}

/** Returns the files of a function for an existing kind, with types generated from its schema. */
export function existingFiles({ names, version, isNamespaced, schema }: ExistingKind, singular: string): Files {
  const { kind, plural, group } = names
  const { spec, status } = schema.properties ?? {}
  const fields = { ...(spec && { spec }), ...(status && { status: { ...status, required: [] } }) }
  const model = typeOf({ type: 'object', properties: fields, required: spec ? ['spec'] : [] })
  const namespace = isNamespaced ? ", namespace: 'default'" : ''
  const where = isNamespaced ? '' : ", namespace: 'default'"
  const example = {
    apiVersion: `${group}/${version}`,
    kind,
    metadata: { name: 'example', ...(isNamespaced && { namespace: 'default' }) },
    ...(spec && { spec: sampleOf(spec) }),
  }
  const body = spec ? `, spec: ${JSON.stringify(sampleOf(spec))}` : ''
  return new Map([
    ['src/index.ts', `export { ${singular} } from './${singular}.ts'\n`],
    [
      `src/${singular}.ts`,
      `import { ConfigMap, kind, reconciler } from 'fairlead'

/** The fields of ${plural}.${group} in version ${version}. */
interface ${kind}Fields ${model}

export const ${kind} = kind<${kind}Fields>({ group: '${group}', version: '${version}', kind: '${kind}', plural: '${plural}' })

/** What a ${kind} should own. It is called after each change of the ${kind} or of what it owns. */
export const ${singular} = reconciler({
  name: '${singular}',
  for: ${kind},
  owns: [ConfigMap],
  reconcile({ object: { metadata } }) {
    return { apply: [ConfigMap.of({ metadata: { name: \`\${metadata.name}-seen\`${where} }, data: { uid: metadata.uid ?? '' } })] }
  },
})
`,
    ],
    [
      `src/${singular}.test.ts`,
      `import { deepEqual } from 'node:assert/strict'
import { test } from 'node:test'
import { ConfigMap } from 'fairlead'
import { lawsOf, type Scenario, simulate } from 'fairlead/testing'
import { ${kind}, ${singular} } from './${singular}.ts'

const example = ${kind}.of({ metadata: { name: 'example'${namespace} }${body} })

test('has a ConfigMap', async () => {
  const world = simulate(${singular}, { objects: [example] })
  await world.runUntilIdle()
  deepEqual(world.list(ConfigMap).map(({ metadata }) => metadata.name), ['example-seen'])
})

const scenario: Scenario = {
  objects: [example],
  steps: [['its ConfigMap is deleted', (world) => world.delete(ConfigMap)]],
}
for (const [law, holds] of lawsOf(${singular}, scenario)) test(law, holds)
`,
    ],
    [`examples/${singular}.yaml`, `${JSON.stringify(example, null, 2)}\n`],
  ])
}

/** An OpenAPI v3 schema of a CustomResourceDefinition. */
export interface Schema {
  type?: string
  description?: string
  properties?: Record<string, Schema>
  additionalProperties?: Schema | boolean
  required?: string[]
  items?: Schema
  enum?: unknown[]
  minimum?: number
  default?: unknown
  nullable?: boolean
  'x-kubernetes-int-or-string'?: boolean
  'x-kubernetes-preserve-unknown-fields'?: boolean
}

/** Returns the TypeScript type of the values that a schema admits. `indent` is the indentation of its line. */
export function typeOf(schema: Schema, indent = ''): string {
  const type = plainType(schema, indent)
  return schema.nullable === true ? `${type} | null` : type
}

function plainType(schema: Schema, indent: string): string {
  if (schema['x-kubernetes-int-or-string'] === true) return 'number | string'
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(' | ')
  const { type = '' } = schema
  switch (type) {
    case 'string':
    case 'boolean':
      return type
    case 'integer':
    case 'number':
      return 'number'
    case 'array':
      return arrayOf(typeOf(schema.items ?? {}, indent))
    case 'object':
      return objectType(schema, indent)
    default:
      return 'unknown'
  }
}

const arrayOf = (item: string): string => (item.includes(' | ') && !item.startsWith('{') ? `(${item})[]` : `${item}[]`)

function objectType({ properties, additionalProperties, required = [] }: Schema, indent: string): string {
  if (properties === undefined) {
    const values = typeof additionalProperties === 'object' ? typeOf(additionalProperties, indent) : 'unknown'
    return `Record<string, ${values}>`
  }
  const fields = Object.entries(properties).flatMap(([name, schema]) => {
    const key = /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)
    // The API server fills in defaults, so the function always reads a field with a default.
    const isThere = required.includes(name) || schema.default !== undefined
    return [
      ...comment(schema, `${indent}  `),
      `${indent}  ${key}${isThere ? '' : '?'}: ${typeOf(schema, `${indent}  `)}`,
    ]
  })
  return fields.length === 0 ? 'Record<string, never>' : `{\n${fields.join('\n')}\n${indent}}`
}

const comment = ({ description }: Schema, indent: string): string[] =>
  description === undefined
    ? []
    : [`${indent}/** ${description.replaceAll('*/', '* /').replaceAll(/\s+/g, ' ').trim()} */`]

/** Returns an example value with the required fields and the defaults. A pattern may still reject it. */
export function sampleOf(schema: Schema): unknown {
  if (schema.default !== undefined) return schema.default
  if (schema.enum !== undefined) return schema.enum[0]
  switch (schema.type ?? '') {
    case 'string':
      return 'text'
    case 'boolean':
      return true
    case 'integer':
    case 'number':
      return schema.minimum ?? 1
    case 'array':
      return []
    default:
      return sampleObject(schema)
  }
}

function sampleObject({ properties = {}, required = [] }: Schema): object {
  const named = Object.entries(properties).filter(([name, one]) => required.includes(name) || one.default !== undefined)
  return Object.fromEntries(named.map(([name, one]) => [name, sampleOf(one)]))
}
