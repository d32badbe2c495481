import { TerminalError, z } from 'fairlead'

const path = z
  .string()
  .regex(/^[^/]+\/.+$/)
  .max(1024)
const secret = z.string().min(1).max(253)
const endpoint = z
  .string()
  .regex(/^https?:\/\/[^/]/)
  .max(1024)
  .optional()

export const agentImage = z
  .string()
  .min(1)
  .max(1024)
  .default('fairlead:latest')
  .describe('Image of the pod that moves the bytes: that of Fairlead.')

export const storageType = z.enum(['S3', 'ABS', 'GCS'])

/** The location of a snapshot. The block of the storage type is required. */
export const storeFields = {
  s3: z
    .object({
      path: path.describe('BUCKET/KEY'),
      awsSecret: secret.describe(
        'Secret with the keys credentials and config (files of the AWS command line, profile default), and ca.crt for an endpoint with an authority of its own.',
      ),
      endpoint: endpoint.describe('URL of a service that speaks S3. Left out: AWS.'),
      forcePathStyle: z.boolean().default(false).describe('The bucket is in the path of the URL, not in its host.'),
    })
    .optional(),
  abs: z
    .object({
      path: path.describe('CONTAINER/BLOB'),
      absSecret: secret.describe(
        'Secret with the keys storage-account, storage-key, and cloud if it is not the public one.',
      ),
      endpoint: endpoint.describe('URL of the blob service. Left out: that of the account.'),
    })
    .optional(),
  gcs: z
    .object({
      path: path.describe('BUCKET/OBJECT'),
      gcpSecret: secret.describe('Secret with the key access-token or credentials.json.'),
      endpoint: endpoint.describe('URL of the service. Left out: that of Google.'),
    })
    .optional(),
}

const fields = z.object(storeFields)
type StoreFields = z.output<typeof fields>

/** Returns a CEL rule that requires the block of the storage type. */
export const hasBlockOf = (type: string): { rule: string; message: string } => ({
  rule: `self.${type} == 'S3' ? has(self.s3) : self.${type} == 'ABS' ? has(self.abs) : has(self.gcs)`,
  message: `the block of the ${type} is missing: S3 needs s3, ABS needs abs, GCS needs gcs`,
})

/** The arguments of the agent for a store, and the Secret that its pod mounts. */
export interface StoreSource {
  args: string[]
  secret: string
}

/** Returns the arguments and the Secret. Throws a TerminalError if the block of the type is missing. */
export function storeSource(type: z.output<typeof storageType>, { s3, abs, gcs }: StoreFields): StoreSource {
  if (type === 'S3' && s3)
    return { args: argsOf('s3', s3, s3.forcePathStyle ? ['--path-style'] : []), secret: s3.awsSecret }
  if (type === 'ABS' && abs) return { args: argsOf('abs', abs), secret: abs.absSecret }
  if (type === 'GCS' && gcs) return { args: argsOf('gcs', gcs), secret: gcs.gcpSecret }
  const block = type.toLowerCase()
  throw new TerminalError(`the type of the store is ${type}, and spec.${block} is missing: add it`, {
    reason: 'NoStore',
  })
}

function argsOf(kind: string, { path, endpoint }: { path: string; endpoint?: string }, more: string[] = []) {
  return [`--store=${kind}`, `--path=${path}`, ...(endpoint === undefined ? [] : [`--endpoint=${endpoint}`]), ...more]
}
