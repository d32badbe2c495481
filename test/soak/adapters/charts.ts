import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stringify } from 'yaml'
import type { KubeObject } from '#contracts'
import type { KubeClient } from '#kube'
import { type ChartFiles, helm, projectOf } from '../../helm/charts.ts'
import { type Contest, createdOn, refOfKind } from './contest.ts'
import { ownerOf, type Watched } from './watched.ts'

const OPEN = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true }
const WEBS = { group: 'demo.example.com', version: 'v1', resource: 'webs' }

/** As operator-sdk makes it. */
const DEFINITION = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'webs.demo.example.com' },
  spec: {
    group: WEBS.group,
    names: { kind: 'Web', listKind: 'WebList', plural: 'webs', singular: 'web' },
    scope: 'Namespaced',
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: { openAPIV3Schema: { type: 'object', properties: { spec: OPEN, status: OPEN } } },
      },
    ],
  },
}

/**
 * No edit changes the template of pods: none of them may go. Nor does one change what identifies an item of a list, such as the
 * port of a Service: helm-operator cannot install over that, and makes the whole release again.
 */
const CHART: ChartFiles = {
  'values.yaml': 'text: first\nport: 80\nmore: ""\n',
  'templates/config.yaml': `
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-config}
data:
  text: {{ .Values.text | quote }}
  {{- if .Values.more }}
  more: {{ .Values.more | quote }}
  {{- end }}
`,
  'templates/auth.yaml': `
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-auth}
stringData: {text: {{ .Values.text | quote }}}
`,
  'templates/service.yaml': `
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{port: 80, targetPort: {{ .Values.port }}}]}
`,
  'templates/deployment.yaml': `
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {app: {{ .Release.Name }}}}
spec:
  replicas: 2
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: registry.example.com/web:1}]
`,
  'templates/NOTES.txt': '{{ .Release.Name }} shows {{ .Values.text }}.\n',
}

/** Makes the folder of an operator of operator-sdk, which has the module of Fairlead too, and its definition. */
export async function chartOf(kube: KubeClient, watched: Watched): Promise<Contest & { dir: string }> {
  const dir = await projectOf(CHART)
  await mkdir(join(dir, 'crds'))
  await mkdir(join(dir, 'node_modules'))
  await symlink(join(import.meta.dirname, '../../..'), join(dir, 'node_modules/fairlead'))
  await writeFile(join(dir, 'crds/web.yaml'), stringify(DEFINITION))
  await writeFile(
    join(dir, 'functions.ts'),
    `import { helmFunctions } from 'fairlead/helm'
export const functions = await helmFunctions(new URL('watches.yaml', import.meta.url), {
  definitions: new URL('crds', import.meta.url).pathname, helm: '${helm}',
})
`,
  )
  await createdOn(kube, DEFINITION)
  const children = ['ConfigMap', 'Secret', 'Service', 'Deployment'].map(refOfKind)
  const [replicaSets, pods] = ['ReplicaSet', 'Pod'].map(refOfKind) as [typeof WEBS, typeof WEBS]
  for (const ref of [WEBS, ...children, replicaSets, pods]) await watched.follow(ref)
  return {
    dir,
    functions: ['-f', join(dir, 'functions.ts')],
    subjects: [
      {
        ref: WEBS,
        most: 8,
        prefix: 'web',
        namespace: 'default',
        make: () => ({ apiVersion: 'demo.example.com/v1', kind: 'Web', metadata: { name: '' }, spec: {} }),
        edit: (_, round) => ({
          patch: { spec: { text: `round ${round}`, port: 80 + round, more: round % 2 === 0 ? null : `odd ${round}` } },
        }),
      },
    ],
    children,
    wantedOf: (_, { metadata: { name }, spec }) => {
      const { text = 'first', port = 80, more } = (spec ?? {}) as { text?: string; port?: number; more?: string }
      const made = (kind: string, rest: object, ending = '') =>
        ({ kind, metadata: { name: `${name}${ending}` }, ...rest }) as unknown as KubeObject
      const data = Buffer.from(text).toString('base64')
      const releases = watched
        .of(refOfKind('Secret'))
        .filter(
          (one) => (one as { type?: string }).type === 'helm.sh/release.v1' && one.metadata.labels?.['name'] === name,
        )
      return {
        children: [
          made('ConfigMap', { data: { text, ...(more !== undefined && { more }) } }, '-config'),
          made('Secret', { data: { text: data } }, '-auth'),
          made('Service', { spec: { ports: [{ targetPort: port }] } }),
          made('Deployment', { status: { availableReplicas: 2 } }),
          ...releases.map(({ kind, metadata }) => ({ kind, metadata: { name: metadata.name } }) as KubeObject),
        ],
        status: { deployedRelease: { name } },
      }
    },
    // Helm makes a Secret for each release.
    mayReplace: ({ metadata: { name } }) => name.startsWith('sh.helm.release.v1.'),
    licenceOf: () => ({
      replacements: () => 0,
      // Helm deletes its former releases.
      isDropped: (child) => child.metadata.name.startsWith('sh.helm.release.v1.'),
    }),
    alsoWrong: () => {
      const alive = new Map(watched.of(replicaSets).map((one) => [one.metadata.uid, one]))
      const restarted = watched.deletions.filter(({ owner }) => owner !== undefined && alive.has(owner))
      const byDeployment = Map.groupBy(alive.values(), ownerOf)
      return [
        ...restarted.map(({ object }) => `Pod ${object.metadata.name} has gone, and its ReplicaSet has not`),
        ...[...byDeployment.values()]
          .filter(({ length }) => length > 1)
          .map(([one]) => `the Deployment of ${one?.metadata.name} has several ReplicaSets`),
      ]
    },
    figures: () => [],
  }
}
