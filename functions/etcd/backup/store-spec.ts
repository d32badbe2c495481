import { TerminalError, z } from 'fairlead'

const path = z
  .string()
  .regex(/^[^/]+\/.+$/)
  .max(1024)
const secret = z.string().min(1).max(253).optional()
const endpoint = z
  .string()
  .regex(/^https?:\/\/[^/]/)
  .max(1024)
  .optional()

export const agentImage = z
  .string()
  .min(1)
  .max(1024)
  .default('fairlead-etcd-agent:latest')
  .describe('Image of the pod that moves the bytes: Fairlead with the clients of the stores.')

export const agentServiceAccount = z
  .string()
  .min(1)
  .max(253)
  .optional()
  .describe(
    'ServiceAccount of the pod that moves the bytes. Without a Secret, its identity in the cloud opens the store. Left out: default.',
  )

export const storageType = z.enum(['S3', 'ABS', 'GCS'])

/** The location of a snapshot. The block of the storage type is required. */
export const storeFields = {
  s3: z
    .object({
      path: path.describe('BUCKET/KEY'),
      awsSecret: secret.describe(
        'Secret with the keys credentials and config (files of the AWS command line, profile default), and ca.crt for an endpoint with an authority of its own. Left out: the identity of agentServiceAccount.',
      ),
      endpoint: endpoint.describe('URL of a service that speaks S3. Left out: AWS.'),
      forcePathStyle: z.boolean().default(false).describe('The bucket is in the path of the URL, not in its host.'),
    })
    .optional(),
  abs: z
    .object({
      path: path.describe('CONTAINER/BLOB'),
      absSecret: secret.describe(
        'Secret with the keys storage-account, storage-key, and cloud if it is not the public one. Left out: the identity of agentServiceAccount.',
      ),
      endpoint: endpoint.describe(
        'URL of the blob service. Left out: that of the account. Without a Secret: https://ACCOUNT.blob.core.windows.net.',
      ),
    })
    .optional(),
  gcs: z
    .object({
      path: path.describe('BUCKET/OBJECT'),
      gcpSecret: secret.describe(
        'Secret with the key access-token or credentials.json. Left out: the identity of agentServiceAccount.',
      ),
      endpoint: endpoint.describe('URL of the service. Left out: that of Google.'),
    })
    .optional(),
}

const fields = z.object(storeFields)
type StoreFields = z.output<typeof fields>

/** Returns the CEL rules of the blocks: that of the type is there, and names the account of ABS. */
export const storeRules = (type: string): { rule: string; message: string }[] => [
  {
    rule: `self.${type} == 'S3' ? has(self.s3) : self.${type} == 'ABS' ? has(self.abs) : has(self.gcs)`,
    message: `the block of the ${type} is missing: S3 needs s3, ABS needs abs, GCS needs gcs`,
  },
  {
    rule: '!has(self.abs) || has(self.abs.absSecret) || has(self.abs.endpoint)',
    message: 'abs has no absSecret: name the account by abs.endpoint, https://ACCOUNT.blob.core.windows.net',
  },
]

/** How the agent reaches a store. */
export interface StoreSource {
  args: string[]
  /** The Secret that the pod mounts. Undefined: the identity of the pod's ServiceAccount opens the store. */
  secret: string | undefined
  /** The labels of the pod by which a cloud gives it an identity. */
  labels: Record<string, string>
}

/** Returns the arguments and the Secret. Throws a TerminalError if the block of the type is missing. */
export function storeSource(type: z.output<typeof storageType>, { s3, abs, gcs }: StoreFields): StoreSource {
  if (type === 'S3' && s3)
    return { args: argsOf('s3', s3, s3.forcePathStyle ? ['--path-style'] : []), secret: s3.awsSecret, labels: {} }
  if (type === 'ABS' && abs) {
    // Azure gives an identity only to pods with this label.
    const labels = abs.absSecret === undefined ? { 'azure.workload.identity/use': 'true' } : undefined
    return { args: argsOf('abs', abs), secret: abs.absSecret, labels: { ...labels } }
  }
  if (type === 'GCS' && gcs) return { args: argsOf('gcs', gcs), secret: gcs.gcpSecret, labels: {} }
  const block = type.toLowerCase()
  throw new TerminalError(`the type of the store is ${type}, and spec.${block} is missing: add it`, {
    reason: 'NoStore',
  })
}

function argsOf(kind: string, { path, endpoint }: { path: string; endpoint?: string }, more: string[] = []) {
  return [`--store=${kind}`, `--path=${path}`, ...(endpoint === undefined ? [] : [`--endpoint=${endpoint}`]), ...more]
}
