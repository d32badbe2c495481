import type { AbsOptions } from './abs.ts'
import type { GcsOptions } from './gcs.ts'
import type { S3Options } from './s3.ts'
import type { Store } from './types.ts'

export { PART_BYTES, PARTS_UNDER_WAY, whole } from './parts.ts'
export { parseServiceAccount, readProfile } from './secrets.ts'
export type { DescribedObject, GetOptions, Metadata, PutOptions, Range, Store, StoredObject } from './types.ts'
export { StoreError, type StoreReason } from './types.ts'

/** The SDK of each provider is imported when its first store is opened. */
export const openS3 = (options: S3Options): Promise<Store> =>
  needing(['@aws-sdk/client-s3'], async () => new (await import('./s3.ts')).S3Store(options))

export const openAbs = (options: AbsOptions): Promise<Store> =>
  needing(['@azure/storage-blob', '@azure/identity'], async () => new (await import('./abs.ts')).AbsStore(options))

export const openGcs = (options: GcsOptions): Promise<Store> =>
  needing(['google-auth-library'], async () => new (await import('./gcs.ts')).GcsStore(options))

/** Names the packages that are missing. They are not installed with fairlead, because they have over 100 MB. */
async function needing(packages: readonly string[], open: () => Promise<Store>): Promise<Store> {
  try {
    return await open()
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code !== 'ERR_MODULE_NOT_FOUND' || !packages.some((name) => message.includes(`'${name}'`))) throw cause
    throw new Error(
      `${packages.join(' and ')} not found: use the image fairlead-etcd-agent, or npm install ${packages.join(' ')}`,
      { cause },
    )
  }
}
