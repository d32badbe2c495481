import type { EventReport, KubeObject } from '#contracts'
import type { KubeClient } from '#kube'
import { type Difference, differences, NoOpWrites, WITHHELD } from '#reconcile'
import { retainerOf } from '#spec'
import { undefinedIfGone } from '../errors.ts'
import type { ReconciliationDeps } from '../run/dependencies.ts'
import type { RunStep } from '../run/trail.ts'

/** One write that a run would have done. */
export type DryRunStep =
  | {
      would: 'create' | 'change' | 'delete'
      kind: string
      namespace: string | undefined
      name: string
      differences: Difference[]
      /** The object is retained, or is deleted here although it was retained. */
      retained?: true
    }
  | ({ would: 'tell' } & EventReport)
  /** `effect`: as JSON, without contents of Secrets; or an act in words. */
  | { would: 'perform'; effect: string }

/**
 * Returns dependencies with which a run writes nothing. The API server only validates the writes (dryRun=All),
 * including defaults, admission and quotas, and the run continues with the results. For one run.
 */
export function dryRunDeps<Deps extends ReconciliationDeps>(deps: Deps, note: (step: DryRunStep) => void): Deps {
  const { kube, events, observe } = deps
  /** The uid of the primary, and the primary as it would be: later observations of the run begin with it. */
  let primary: string | undefined
  let written: KubeObject | undefined
  /** A change is told once, although each answer has only its own change: a later one has the former record of fields. */
  const told = new Set<string>()
  const isConfidential = (path: string) => events.isReferenceOnly(resourceOf(path))
  return {
    ...deps,
    kube: dryRunClient(kube, (path, before, after) => {
      const object = (after ?? before) as KubeObject
      const { kind, metadata } = object
      const { namespace, name } = metadata
      const would = before === undefined ? 'create' : after === undefined ? 'delete' : 'change'
      const found = would === 'delete' ? [] : differences(before, after)
      if (would === 'change' && found.length === 0) return
      const shown = isConfidential(path) ? found.map(withheld) : found
      const retained = retainerOf(object) && { retained: true as const }
      const step = { would, kind, namespace, name, differences: shown, ...retained } as const
      const text = JSON.stringify(step)
      if (!told.has(text)) note(step)
      told.add(text)
    }),
    events: {
      async observe(query) {
        const found = await events.observe({ ...query, withView: false })
        primary = found.primary?.object.metadata.uid
        return found.primary && written?.metadata.uid === primary
          ? { ...found, primary: { ...found.primary, object: written } }
          : found
      },
      isReferenceOnly: (ref) => events.isReferenceOnly(ref),
      ...(events.cursor && { cursor: events.cursor.bind(events) }),
      async put(_ref, _verb, object) {
        if (object.metadata.uid === primary) written = object
        return { outcome: 'stored', sequence: 0, origin: undefined, formerOwners: [] }
      },
    },
    noOps: new NoOpWrites(),
    skipEffect: (effect) => note({ would: 'perform', effect }),
    recorder: { record: (_kube, _reconciler, _object, report) => note({ would: 'tell', ...report }) },
    observe: (step) => (CHANGES.has(step.step) ? undefined : observe(step)),
  }
}

/** The steps of a run that a dry run does not make. */
const CHANGES: ReadonlySet<RunStep['step']> = new Set(['written', 'takenBack', 'counted', 'measured'])

type NoteChange = (path: string, before: KubeObject | undefined, after: KubeObject | undefined) => void

/** Reads the object before each write, so that the difference is to the state of the cluster. */
function dryRunClient(kube: KubeClient, note: NoteChange): KubeClient {
  const dryRun = true
  const during = async <T>(path: string, act: () => Promise<T>, after: (answer: T) => KubeObject | undefined) => {
    const before = await kube.get(path).catch(undefinedIfGone)
    const answer = await act()
    note(path, before, after(answer))
    return answer
  }
  const changing = <T>(path: string, act: () => Promise<T>): Promise<T> =>
    during(path.replace(/\/status$/, ''), act, (answer) => answer as KubeObject)
  const refused = (what: string) => () => Promise.reject(new TypeError(`a dry run cannot ${what}`))
  return {
    ...kube,
    as: (user) => dryRunClient(kube.as(user), note),
    with: (headers) => dryRunClient(kube.with(headers), note),
    request: refused('send any request'),
    replace: refused('replace objects'),
    applyStatus: refused('apply a status'),
    create: async <T>(path: string, object: object, options: object) => {
      const created = await kube.create<T>(path, object, { ...options, dryRun })
      note(path, undefined, created as KubeObject)
      return created
    },
    apply: (path, object, options) => changing(path, () => kube.apply(path, object, { ...options, dryRun })),
    patch: (path, patch, type, options) => changing(path, () => kube.patch(path, patch, type, { ...options, dryRun })),
    delete: (path, options) =>
      during(
        path,
        () => kube.delete(path, { ...options, dryRun }),
        () => undefined,
      ),
  }
}

const withheld = ({ path, ...values }: Difference): Difference =>
  /^\.(?:kind|apiVersion|metadata)\b/.test(path)
    ? { path, ...values }
    : { path, ...('before' in values && { before: WITHHELD }), ...('after' in values && { after: WITHHELD }) }

/** Parses `/apis/GROUP/VERSION/[namespaces/NAMESPACE/]RESOURCE/…` and `/api/VERSION/…`. */
function resourceOf(path: string): { group: string; resource: string } {
  const [, root, ...rest] = path.split('/')
  const group = root === 'api' ? '' : (rest.shift() ?? '')
  const [, first = '', , third] = rest
  return { group, resource: first === 'namespaces' && third !== undefined ? third : first }
}
