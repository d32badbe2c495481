import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { stringify } from 'yaml'
import { type HelmOptions, helmFunctions } from '#helm'
import { ensureBinaries, progressOn } from '#lab'
import { type KubeObject, kind, type Reconciler } from '#sdk'

/** The path of the real Helm. */
export const helm = (await ensureBinaries(['helm'], progressOn(process.stderr)))('helm')

/** Texts of files, keyed by their paths in a chart. `Chart.yaml` is added. */
export type ChartFiles = Record<string, string>

/** A chart with a ConfigMap that shows values, and a Deployment. */
export const WEB: ChartFiles = {
  'values.yaml': 'replicas: 1\nimage: {tag: "1.0"}\ntext: hi\n',
  'templates/config.yaml': `
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-config
data:
  text: {{ .Values.text | quote }}
  release: {{ .Release.Namespace }}/{{ .Release.Name }}/{{ .Release.Revision }}/{{ .Release.IsInstall }}
`,
  'templates/deployment.yaml': `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
  labels: {app: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
      annotations:
    spec:
      nodeSelector:
      containers: [{name: web, image: "registry.example.com/web:{{ .Values.image.tag }}"}]
`,
  'templates/NOTES.txt': '{{ .Release.Name }} has {{ .Values.replicas }} replicas.\n',
}

/** A folder with a watches.yaml of one entry and its chart, as operator-sdk lays it out. */
export async function projectOf(files: ChartFiles, watch: object = {}): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'fl-helm-'))
  const entry = { group: 'demo.example.com', version: 'v1', kind: 'Web', chart: 'helm-charts/web', ...watch }
  const all = { 'Chart.yaml': 'apiVersion: v2\nname: web\nversion: 0.1.0\n', ...files }
  await writeFile(join(dir, 'watches.yaml'), stringify([entry]))
  for (const [path, text] of Object.entries(all)) {
    await mkdir(dirname(join(dir, 'helm-charts/web', path)), { recursive: true })
    await writeFile(join(dir, 'helm-charts/web', path), text)
  }
  return dir
}

/** The function of a watches.yaml with one entry. */
export async function functionOf(
  files: ChartFiles,
  watch: object = {},
  options: HelmOptions = {},
): Promise<Reconciler> {
  const dir = await projectOf(files, watch)
  const [made] = await helmFunctions(join(dir, 'watches.yaml'), { helm, ...options })
  if (made === undefined) throw new Error('no function was made')
  return made
}

export const Web = kind<KubeObject>({ group: 'demo.example.com', version: 'v1', kind: 'Web', plural: 'webs' })

export const web = (spec: object = {}, annotations: Record<string, string> = {}): KubeObject =>
  Web.of({ metadata: { name: 'a', namespace: 'shop', annotations }, spec })
