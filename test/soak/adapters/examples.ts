import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseAllDocuments } from 'yaml'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import type { Subject } from './load.ts'

export const NAMESPACES = ['alpha', 'beta']
/** Of what is propagated to the others. */
const SOURCE = 'omega'

/** An example of Metacontroller: its folder, and objects for its controllers. */
interface Example {
  folder: string
  subjects: Record<string, Omit<Subject, 'prefix'>>
  /** The kinds that its customize hook names. */
  related?: string
  /** In which file the hook is, if not in one of the two usual ones. */
  isInManifest?: boolean
}

const template = (round: number) => ({
  metadata: { labels: { app: 'soak' } },
  spec: {
    terminationGracePeriodSeconds: 1,
    containers: [
      { name: 'main', image: 'registry.example.com/main:1', env: [{ name: 'ROUND', value: String(round) }] },
    ],
  },
})
const object =
  (apiVersion: string, kind: string, spec: object, metadata: object = {}) =>
  (name: string) =>
    ({ apiVersion, kind, metadata: { name, ...metadata }, spec }) as KubeObject
const [CTL, DEMO, SHOWN] = ['ctl.enisoc.com/v1', 'ctl.example.com/v1', 'examples.metacontroller.io/v1alpha1']
const refOf = (apiVersion: string, resource: string) => {
  const [group = '', version = ''] = apiVersion.split('/')
  return { group, version, resource }
}
const core = (kind: 'ConfigMap' | 'Secret') => (name: string) =>
  ({ apiVersion: 'v1', kind, metadata: { name, namespace: SOURCE }, data: { some: 'Zmlyc3Q=' } }) as KubeObject
const dataOf = (resource: string) => (name: string, round: number) => ({
  path: resourcePath({ group: '', version: 'v1', resource }, SOURCE, name),
  patch: { data: { some: Buffer.from(`round ${round}`).toString('base64') } },
})
const configData = (_: string, round: number) => ({ patch: { spec: { configData: `round ${round}` } } })
const selected = { app: 'soak' }

/** Those whose hooks run here, and whose controllers are offered. */
export const EXAMPLES: readonly Example[] = [
  {
    folder: 'catset',
    subjects: {
      cat: {
        ref: refOf(CTL, 'catsets'),
        most: 3,
        namespace: 'default',
        make: (name) =>
          object(CTL, 'CatSet', {
            serviceName: name,
            replicas: 2,
            selector: { matchLabels: selected },
            template: template(0),
            volumeClaimTemplates: [
              {
                metadata: { name: 'www', labels: selected },
                spec: {
                  accessModes: ['ReadWriteOnce'],
                  storageClassName: 'by-hand',
                  resources: { requests: { storage: '1Gi' } },
                },
              },
            ],
          })(name),
        edit: (_, round) => ({ patch: { spec: { template: template(round), ...(round === 4 && { replicas: 3 }) } } }),
      },
    },
  },
  {
    folder: 'bluegreen',
    subjects: {
      blue: {
        ref: refOf(CTL, 'bluegreendeployments'),
        most: 3,
        namespace: 'default',
        make: (name) => {
          const labels = { app: name }
          return object(CTL, 'BlueGreenDeployment', {
            replicas: 2,
            minReadySeconds: 1,
            selector: { matchLabels: labels },
            template: { ...template(0), metadata: { labels } },
            service: { metadata: { name, labels }, spec: { selector: labels, ports: [{ port: 80 }] } },
          })(name)
        },
        edit: (name, round) => ({
          patch: { spec: { template: { ...template(round), metadata: { labels: { app: name } } } } },
        }),
      },
    },
  },
  {
    folder: 'indexedjob',
    subjects: {
      job: {
        ref: refOf(CTL, 'indexedjobs'),
        most: 3,
        namespace: 'default',
        make: object(CTL, 'IndexedJob', { completions: 2, parallelism: 9, template: template(0) }),
        edit: (_, round) => ({ patch: { spec: { completions: 2 + Math.min(round, 4) } } }),
      },
    },
  },
  {
    folder: 'update-strategy',
    isInManifest: true,
    subjects: {
      kept: {
        ref: refOf(DEMO, 'ondeletedemos'),
        most: 5,
        namespace: 'default',
        make: object(DEMO, 'OnDeleteDemo', { configData: 'first' }),
        edit: configData,
      },
      again: {
        ref: refOf(DEMO, 'recreatedemos'),
        most: 5,
        namespace: 'default',
        make: object(DEMO, 'RecreateDemo', { configData: 'first' }),
        edit: configData,
      },
    },
  },
  {
    folder: 'configmappropagation',
    related: 'configmaps.v1',
    subjects: {
      settings: {
        ref: refOf(SHOWN, 'configmappropagations'),
        most: 4,
        before: (name) => [core('ConfigMap')(name)],
        make: (name) =>
          object(
            SHOWN,
            'ConfigMapPropagation',
            { sourceName: name, sourceNamespace: SOURCE, targetNamespaces: NAMESPACES },
            { labels: { version: 'v1' } },
          )(name),
        edit: dataOf('configmaps'),
      },
    },
  },
  {
    folder: 'secretpropagation',
    related: 'secrets.v1, namespaces.v1',
    subjects: {
      shared: {
        ref: refOf(SHOWN, 'secretpropagations'),
        most: 4,
        before: (name) => [core('Secret')(name)],
        make: (name) =>
          object(SHOWN, 'SecretPropagation', {
            sourceName: name,
            sourceNamespace: SOURCE,
            targetNamespaceLabelSelector: { matchLabels: { propagate: 'true' } },
          })(name),
        edit: dataOf('secrets'),
      },
    },
  },
  {
    folder: 'namespace-list-v2',
    related: 'namespaces.v1',
    subjects: {
      names: {
        ref: refOf(SHOWN, 'namespacelists'),
        most: 4,
        namespace: 'default',
        make: object(SHOWN, 'NamespaceList', { labelSelector: {} }),
        edit: (_, round) => ({
          patch: { spec: { labelSelector: { matchLabels: round % 2 === 0 ? null : { propagate: 'true' } } } },
        }),
      },
    },
  },
  {
    folder: 'clusteredparent',
    subjects: {
      bound: {
        ref: refOf('rbac.authorization.k8s.io/v1', 'clusterroles'),
        most: 3,
        make: (name) => ({
          apiVersion: 'rbac.authorization.k8s.io/v1',
          kind: 'ClusterRole',
          metadata: { name, annotations: { 'default-service-account-binding': 'default' } },
          rules: [],
        }),
        edit: (_, round) => ({ patch: { metadata: { annotations: { round: String(round) } } } }),
      },
    },
  },
]

export const subjectsOf = ({ subjects }: Example): Subject[] =>
  Object.entries(subjects).map(([prefix, subject]) => ({ prefix, ...subject }))

/** What a clone of Metacontroller has of an example: the definitions, the controllers, and the file of its hook. */
export function filesOf(clone: string, { folder, isInManifest }: Example) {
  const dir = join(clone, 'examples', folder)
  const documentsIn = (part: string) =>
    readdirSync(join(dir, part))
      .filter((file) => file.endsWith('.yaml') && file !== 'kustomization.yaml')
      .flatMap((file) => documentsOf(join(dir, part, file)))
  const manifest = documentsIn('manifest')
  const hook = ['sync.py', 'sync.js'].find((file) => readdirSync(join(dir, 'manifest')).includes(file))
  const inManifest = manifest.find(({ kind }) => kind === 'ConfigMap')?.['data'] as Record<string, string> | undefined
  return {
    definitions: folder === 'clusteredparent' ? [] : documentsIn('v1'),
    controllers: manifest.filter(({ kind }) => kind.endsWith('Controller')),
    hook: hook === undefined ? undefined : join(dir, 'manifest', hook),
    text: isInManifest ? inManifest?.['sync.py'] : undefined,
  }
}

export const documentsOf = (file: string): KubeObject[] =>
  parseAllDocuments(readFileSync(file, 'utf8')).flatMap((one) => (one.toJS() as KubeObject | null) ?? [])
