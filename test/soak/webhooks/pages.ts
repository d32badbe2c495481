import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { moved, type Reconciler, reconciler, resource, scaled, wrapped, z } from '#sdk'

export const VERSIONS = ['v1', 'v1beta1'] as const
export type Version = (typeof VERSIONS)[number]

/** All that a Page has in any of its versions. */
export interface Fields {
  url: string
  title: string
  mounts: readonly { name: string; path: string; kind?: string }[]
  /** v1beta1 shows the first one. */
  ports: readonly number[]
  /** v1beta1 shows seconds. */
  ms: number
  /** Of v1 alone. */
  tls?: string
  zone?: string
  /** Of v1beta1 alone. */
  note?: string
  label?: string
}

const byName = { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] }
const mount = { name: z.string(), path: z.string() }
const old = z.object({
  url: z.string(),
  title: z.string(),
  mounts: z.array(z.object(mount)).meta(byName),
  port: z.int32(),
  seconds: z.int32(),
  legacy: z.object({ note: z.string() }).optional(),
})
const now = z.object({
  http: z.object({ url: z.string(), tls: z.string().optional() }),
  title: z.string(),
  mounts: z.array(z.object({ ...mount, kind: z.string().optional() })).meta(byName),
  ports: z.array(z.int32()),
  ms: z.int32(),
  zone: z.string().optional(),
})
const names = { group: 'webhooks.soak.test', kind: 'Page', plural: 'pages', status: z.object({}) } as const

/** The function as it is before the new version, and with it. */
export function releaseOf(release: 'first' | 'second'): Reconciler {
  const first = () => resource({ ...names, version: 'v1beta1', spec: old })
  const second = () =>
    resource({
      ...names,
      version: 'v1',
      spec: now,
      served: [
        {
          version: 'v1beta1',
          spec: old,
          convert: [
            moved('.spec.url', '.spec.http.url'),
            wrapped('.spec.port', '.spec.ports'),
            scaled('.spec.seconds', '.spec.ms', 1000),
          ],
        },
      ],
      validate: ({ spec }) => (spec.title === '' ? [{ path: '.spec.title', message: 'it is empty' }] : []),
    })
  return reconciler({ name: 'page', for: release === 'first' ? first() : second(), reconcile: () => ({}) })
}

/** Writes the modules that `fairlead` is given, and returns their paths. */
export async function writeReleases(dir: string): Promise<{ first: string; second: string }> {
  const own = JSON.stringify(fileURLToPath(import.meta.url))
  const [first, second] = ['first', 'second'].map((name) => join(dir, `${name}.ts`)) as [string, string]
  for (const [name, file] of Object.entries({ first, second }))
    await writeFile(file, `import { releaseOf } from ${own}\nexport const page = releaseOf('${name}')\n`)
  return { first, second }
}

export const pathOf = (version: Version, name?: string): string =>
  resourcePath({ group: names.group, version, resource: names.plural }, 'default', name)

export const DEFINITION = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${names.plural}.${names.group}`

/** A Page of before, as a client of v1beta1 creates it. */
export const firstFields = (index: number): Fields => ({
  url: `https://${index}.example.com`,
  title: `page ${index}`,
  mounts: ['a', 'b', 'c'].map((name) => ({ name, path: `/${name}/${index}` })),
  ports: [8000 + (index % 1000)],
  ms: 1000 * (1 + (index % 60)),
  ...(index % 2 === 0 && { note: `note ${index}` }),
})

/** What a version has to show. */
export function shownIn(version: Version, fields: Fields): { spec: object; label?: string } {
  const { url, title, mounts, ports, ms, tls, zone, note, label } = fields
  const shown =
    version === 'v1'
      ? { http: { url, ...(tls !== undefined && { tls }) }, mounts, ports, ms, ...(zone !== undefined && { zone }) }
      : {
          url,
          mounts: mounts.map(({ name, path }) => ({ name, path })),
          port: ports[0],
          seconds: Math.round(ms / 1000),
          ...(note !== undefined && { legacy: { note } }),
        }
  return { spec: { title, ...shown }, ...(label !== undefined && { label }) }
}

/** What is left when a client of a version writes all that it sees, without annotations: what it does not see is gone. */
export function onlyIn(version: Version, { tls, zone, note, ...both }: Fields): Fields {
  if (version === 'v1') return { ...both, ...(tls !== undefined && { tls }), ...(zone !== undefined && { zone }) }
  return {
    ...both,
    mounts: both.mounts.map(({ name, path }) => ({ name, path })),
    ports: both.ports.slice(0, 1),
    ms: 1000 * Math.round(both.ms / 1000),
    ...(note !== undefined && { note }),
  }
}

export const bodyOf = (version: Version, name: string, fields: Fields): KubeObject => ({
  apiVersion: `${names.group}/${version}`,
  kind: names.kind,
  metadata: { name },
  spec: shownIn(version, fields).spec,
})

/** Labels of an object, beside its spec. */
export const seenOf = ({ spec, metadata }: KubeObject): { spec: unknown; label?: string } => {
  const label = metadata.labels?.['edited']
  return { spec, ...(label !== undefined && { label }) }
}

/** One edit of one client: what it sends as a merge patch, and what the object is afterwards. */
export interface Edit {
  version: Version
  patch: object
  after: Fields
}

type Editing = (value: number, before: Fields) => Omit<Edit, 'version'>

const mountsWith = ({ mounts }: Fields, value: number, more: { kind?: string }) =>
  mounts.map((one, index) => (index === value % mounts.length ? { ...one, path: `/edited/${value}`, ...more } : one))

const ofBoth: Editing[] = [
  (value, before) => ({ patch: { spec: { title: `title ${value}` } }, after: { ...before, title: `title ${value}` } }),
  (value, before) => ({
    patch: { metadata: { labels: { edited: `${value}` } } },
    after: { ...before, label: `${value}` },
  }),
]

const EDITS: Record<Version, Editing[]> = {
  v1: [
    ...ofBoth,
    (value, before) => {
      const url = `https://new-${value}.example.com`
      return { patch: { spec: { http: { url } } }, after: { ...before, url } }
    },
    (value, before) => ({
      patch: { spec: { http: { tls: `tls-${value}` } } },
      after: { ...before, tls: `tls-${value}` },
    }),
    (value, before) => ({ patch: { spec: { zone: `zone-${value}` } }, after: { ...before, zone: `zone-${value}` } }),
    (value, before) => {
      const ports = [value, value + 1, value + 2]
      return { patch: { spec: { ports } }, after: { ...before, ports } }
    },
    (value, before) => {
      const ms = 1000 * value + (value % 499)
      return { patch: { spec: { ms } }, after: { ...before, ms } }
    },
    (value, before) => {
      const mounts = mountsWith(before, value, { kind: `kind-${value}` })
      return { patch: { spec: { mounts } }, after: { ...before, mounts } }
    },
  ],
  v1beta1: [
    ...ofBoth,
    (value, before) => {
      const url = `https://old-${value}.example.com`
      return { patch: { spec: { url } }, after: { ...before, url } }
    },
    (value, before) => ({
      patch: { spec: { legacy: { note: `note-${value}` } } },
      after: { ...before, note: `note-${value}` },
    }),
    // The other ports stay.
    (value, before) => ({
      patch: { spec: { port: value } },
      after: { ...before, ports: [value, ...before.ports.slice(1)] },
    }),
    (value, before) => ({ patch: { spec: { seconds: value } }, after: { ...before, ms: 1000 * value } }),
    // What a mount has in v1 alone stays.
    (value, before) => {
      const mounts = mountsWith(before, value, {})
      const shown = mounts.map(({ name, path }) => ({ name, path }))
      return { patch: { spec: { mounts: shown } }, after: { ...before, mounts } }
    },
  ],
}

/** An edit with a value that no field has had before: from 1 to 2,000,000. */
export function editOf(version: Version, random: () => number, value: number, before: Fields): Edit {
  const all = EDITS[version]
  const editing = all[Math.floor(random() * all.length)] ?? ofBoth[0]!
  return { version, ...editing(value, before) }
}
