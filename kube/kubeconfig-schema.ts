import { z } from 'zod'

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
export const kubeConfigSchema = z.object({
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
