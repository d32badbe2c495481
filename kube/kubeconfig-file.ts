import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { BoundedMap } from '#primitives'
import { ClusterAccessError } from './errors.ts'

export interface KubeConfigFile {
  path: string
  config: KubeConfig
}

/** Reads the files that exist. As in kubectl, some of several files may be missing, but not all. */
export async function readKubeConfigs(paths: string[]): Promise<KubeConfigFile[]> {
  const files = (await Promise.all(paths.map(readKubeConfig))).filter((file) => file !== undefined)
  if (files.length > 0) return files
  throw new ClusterAccessError(
    paths.length === 1
      ? `there is no kubeconfig ${paths[0]}; create it, or let KUBECONFIG name one that exists`
      : `none of these kubeconfigs exists: ${paths.join(', ')}; let KUBECONFIG name one that does`,
  )
}

/**
 * What was read last, by path. A process that serves many clusters reads their files every few seconds, and one with a
 * hundred contexts takes 20 ms to parse.
 */
const known = new BoundedMap<string, { text: string; config: KubeConfig }>(8 * 2 ** 20, ({ text }) => text.length)

async function readKubeConfig(path: string): Promise<KubeConfigFile | undefined> {
  const text = await readText(path)
  if (text === undefined) return undefined
  const before = known.get(path)
  if (before?.text === text) return { path, config: before.config }
  const file = await kubeConfigIn(text, path)
  known.set(path, { text, config: file.config })
  return file
}

/** `path`: where the text comes from, for messages. */
export async function kubeConfigIn(text: string, path: string): Promise<KubeConfigFile> {
  const { success, data, error } = kubeConfigSchema.safeParse(await parseYaml(path, text))
  if (success) return { path, config: data }
  throw new ClusterAccessError(`${path} is not a kubeconfig: ${z.prettifyError(error)}`, { cause: error })
}

async function readText(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new ClusterAccessError(`the kubeconfig ${path} cannot be read: ${message}`, { cause })
  }
}

/** The parser is imported here because a pod has no kubeconfig, and no other input is YAML. */
async function parseYaml(path: string, text: string): Promise<unknown> {
  const { parse } = await import('yaml')
  try {
    // As kubectl: the last of two equal keys counts. The search for them takes minutes in a large file, and a warning shows the text.
    return parse(text, { uniqueKeys: false, logLevel: 'error' })
  } catch (cause) {
    const [where = ''] = (cause as Error).message.split('\n')
    throw new ClusterAccessError(`${path} is not valid YAML: ${where.replace(/:$/, '')}`, { cause })
  }
}

/** kubectl writes empty strings and nulls for fields that are not set. */
const text = z
  .string()
  .nullish()
  .transform((value) => (value === null || value === '' ? undefined : value))

const cluster = z.object({
  server: text,
  'certificate-authority': text,
  'certificate-authority-data': text,
  'insecure-skip-tls-verify': z.boolean().nullish(),
  'tls-server-name': text,
  'proxy-url': text,
})

const user = z.object({
  'client-certificate': text,
  'client-certificate-data': text,
  'client-key': text,
  'client-key-data': text,
  token: text,
  tokenFile: text,
  username: text,
  as: text,
  'as-groups': z.array(z.string()).nullish(),
  'as-uid': text,
  'as-user-extra': z.record(z.string(), z.array(z.string())).nullish(),
  exec: z
    .looseObject({
      apiVersion: z.string(),
      command: z.string().min(1),
      args: z.array(z.string()).nullish(),
      env: z.array(z.object({ name: z.string(), value: z.string() })).nullish(),
      installHint: text,
    })
    .nullish(),
  'auth-provider': z.looseObject({ name: z.string() }).nullish(),
})

const context = z.object({ cluster: text, user: text, namespace: text })

/** The fields of a kubeconfig that are used (`kind: Config`, `apiVersion: v1`). */
const kubeConfigSchema = z.object({
  'current-context': text,
  clusters: z.array(z.object({ name: z.string(), cluster })).nullish(),
  users: z.array(z.object({ name: z.string(), user: z.preprocess((given) => given ?? {}, user) })).nullish(),
  contexts: z.array(z.object({ name: z.string(), context })).nullish(),
})

export type KubeConfig = z.output<typeof kubeConfigSchema>
export type ClusterEntry = z.output<typeof cluster>
export type UserEntry = z.output<typeof user>

/** An entry and its file. Relative paths in the entry are relative to the folder of the file. */
export interface Entry<T> {
  value: T
  file: string
}

/** The inputs of a user's credentials besides the entry. */
export interface Circumstances {
  /** The source of the credentials, for messages. */
  origin: string
  now: () => number
}
