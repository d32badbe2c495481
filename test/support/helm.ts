import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseAllDocuments } from 'yaml'
import type { KubeObject } from '#contracts'
import { ensureBinaries, progressOn } from '#lab'
import { charts } from '../../cli/install/generate.ts'
import { cacheDir } from '../../packages/lab/build.ts'
import { madeOnce } from './made-once.ts'

/** `await helm(['template', …])`: resolves with the standard output, and rejects with the error output. */
export type Helm = (args: string[]) => Promise<string>

const folder = await madeCharts()
export const CHART = join(folder, 'fairlead')
export const FUNCTIONS_CHART = join(folder, 'fairlead-functions')
export const SYSTEM = ['--namespace', 'fairlead-system']
/** What `fairlead install` has applied becomes part of a release. */
export const TAKE_OVER = ['--take-ownership', '--force-conflicts']

/** The real Helm, with settings of its own in a folder. Without a kubeconfig it has no cluster. */
export async function helmIn(dir: string, kubeconfig = join(dir, 'none')): Promise<Helm> {
  const program = (await ensureBinaries(['helm'], progressOn(process.stderr)))('helm')
  const homes = Object.fromEntries(['CONFIG', 'CACHE', 'DATA'].map((kind) => [`HELM_${kind}_HOME`, join(dir, 'helm')]))
  const env = { ...process.env, ...homes, KUBECONFIG: kubeconfig }
  return (args) =>
    new Promise((resolve, reject) => {
      execFile(program, args, { env, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
        if (error) reject(new Error(stderr || error.message, { cause: error }))
        else resolve(stdout)
      })
    })
}

/** Parses objects as Kubernetes does. */
export const objectsOf = (text: string): KubeObject[] =>
  parseAllDocuments(text, { version: '1.1' }).flatMap((one) => (one.toJS() as KubeObject | null) ?? [])

export const titleOf = ({ kind, metadata: { name } }: KubeObject): string => `${kind} ${name}`

export const isHook = ({ metadata }: KubeObject): boolean => metadata.annotations?.['helm.sh/hook'] !== undefined

/** The charts as `npm run generate` makes them, in a folder for each state of them. */
async function madeCharts(): Promise<string> {
  const files = await charts()
  const digest = createHash('sha256').update(JSON.stringify([...files]))
  const made = join(cacheDir(), 'charts', digest.digest('hex').slice(0, 12))
  await madeOnce(made, join(made, 'done'), async () => {
    for (const [path, text] of files) {
      await mkdir(dirname(join(made, path)), { recursive: true })
      await writeFile(join(made, path), text)
    }
    await writeFile(join(made, 'done'), '')
  })
  return made
}
