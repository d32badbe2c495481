import { readFileSync } from 'node:fs'
import * as fc from 'fast-check'
import { parse } from 'yaml'
import type { KubeObject } from '#contracts'
import { admittedBy, type Schema } from '../support/schema.ts'
import { configMaps, reconcilerObject } from './objects.ts'

interface Definition {
  spec: { versions: { schema: { openAPIV3Schema: Schema } }[] }
}

const FILE = new URL('../../crds/fairlead.dev_reconcilers.yaml', import.meta.url)

export const definition = (): Definition => parse(readFileSync(FILE, 'utf8')) as Definition

/** Resources of the first list are served by every API server; some of the second cannot be watched, or are not there. */
const RESOURCES = ['configmaps', 'secrets', 'namespaces', 'reconcilers', 'events']
const OTHERS = ['bindings', 'tokenreviews', 'widgets']

const KINDS: Record<string, string> = {
  configmaps: 'ConfigMap',
  secrets: 'Secret',
  namespaces: 'Namespace',
  reconcilers: 'Reconciler',
  events: 'Event',
}

const RARELY_TAKEN = ['acts', 'external', 'patches']

const LIKELY: Record<string, readonly string[]> = {
  group: ['', '', 'fairlead.dev', 'events.k8s.io', 'a..b'],
  version: ['v1', 'v1', 'v1alpha1'],
  resource: [...RESOURCES, ...RESOURCES, ...OTHERS],
  kind: ['ConfigMap', 'Secret', 'Reconciler'],
  namespaces: ['default', 'missing'],
  selector: ['a=b', 'a in (b,c)', '!a', 'a>1'],
  fieldSelector: ['metadata.name=a', 'status.phase=Running', 'a'],
  byName: ['spec.name', "metadata.annotations['a/b']", 'spec.volumes[*].name'],
  naming: ['spec.nodeName', 'spec.parentRefs[*].name'],
  url: ['http://fn.default.svc', 'ftp://fn'],
}

const likely = (path: string) => LIKELY[path.slice(path.lastIndexOf('.') + 1)] ?? []

interface Sampled {
  for: Record<string, unknown>
  owns?: object[]
  related?: object[]
  metrics?: { name: string; type: string; labels?: { name: string }[] }[]
}

/** Rules refuse these fields beside most values of others, and parsers most values of selectors. */
const DIFFICULT = ['adopt', 'byOwner', 'naming', 'within', 'namespacePath', 'selector', 'fieldSelector']
const easy = (one: object) => Object.fromEntries(Object.entries(one).filter(([field]) => !DIFFICULT.includes(field)))

/** Each has a name of its own, which says whether it is a Counter. */
const named = (metrics: Sampled['metrics']) =>
  metrics?.map(({ name, labels, ...metric }, index) => ({
    ...metric,
    name: `${name.slice(0, 40)}_${index}${metric.type === 'Counter' ? '_total' : ''}`,
    ...(labels && { labels: labels.map((label, at) => ({ ...label, name: `${label.name.slice(0, 40)}_${at}` })) }),
  }))

/** Returns specs that the schema of Reconcilers admits. Its CEL rules are ignored. */
export function specifications(count: number, seed: number): object[] {
  const spec = definition().spec.versions[0]?.schema.openAPIV3Schema.properties?.['spec'] ?? {}
  const sampled = fc.sample(admittedBy(spec, likely), { numRuns: count, seed }) as Sampled[]
  // Of most, the kind is that of the resource: a bridge refuses the others.
  return sampled.map((sample, index) => {
    // Rules in CEL refuse most of what these have at random: at most one of them is there.
    const others = RARELY_TAKEN.filter((_, at) => at !== index % (RARELY_TAKEN.length + 1))
    const isEasy = index % 3 !== 0
    const one = {
      ...sample,
      ...Object.fromEntries(others.map((field) => [field, undefined])),
      metrics: named(sample.metrics),
      ...(isEasy && { owns: sample.owns?.map(easy), related: sample.related?.map(easy), for: easy(sample.for) }),
    }
    const kind = KINDS[String(sample.for['resource'])]
    return kind === undefined || index % 4 === 0 ? one : { ...one, for: { ...one.for, kind } }
  })
}

/** Names that the API server takes, up to the longest. */
export function names(count: number, seed: number): string[] {
  const name = fc.oneof(
    fc.stringMatching(/^[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\.[a-z0-9]{1,9})?$/),
    fc.constant('a'.repeat(249)),
  )
  return fc.sample(name, { numRuns: count, seed }).map((one, index) => `${one}${index % 10}`)
}

export const admittedObject = (name: string, spec: object): KubeObject => ({
  ...reconcilerObject(name, { for: configMaps }),
  spec,
})
