import type { S3Credentials } from './s3.ts'

/** The files `credentials` and `config` of the AWS command line. */
export interface ProfileFiles {
  credentials: string
  config?: string
}

export interface Profile {
  credentials: S3Credentials
  region: string
}

const DEFAULT_REGION = 'us-east-1'

/**
 * Reads the keys of the profile `default`. Throws an Error that names the file and the missing setting, without values.
 * The loader of the SDK would also follow settings that name programs and files to read.
 */
export function readProfile({ credentials, config = '' }: ProfileFiles): Profile {
  const own = section(credentials, ['default'])
  const common = section(config, ['default', 'profile default'])
  const setting = (name: string): string | undefined => own.get(name) ?? common.get(name)
  return {
    region: common.get('region') ?? own.get('region') ?? DEFAULT_REGION,
    credentials: {
      accessKeyId: required(setting('aws_access_key_id'), 'aws_access_key_id'),
      secretAccessKey: required(setting('aws_secret_access_key'), 'aws_secret_access_key'),
      sessionToken: setting('aws_session_token'),
    },
  }
}

function required(value: string | undefined, name: string): string {
  if (value !== undefined && value !== '') return value
  throw new Error(`the file credentials has no ${name} in its section [default]: write [default], then ${name} = …`)
}

function section(text: string, names: readonly string[]): Map<string, string> {
  const found = new Map<string, string>()
  let isWanted = false
  for (const line of text.split(/\r?\n/)) {
    const [, title] = /^\s*\[\s*([^\]]*?)\s*\]/.exec(line) ?? []
    if (title !== undefined) isWanted = names.includes(title)
    const [, name, value] = /^\s*([A-Za-z0-9_]+)\s*=\s*(.*?)\s*$/.exec(line) ?? []
    if (isWanted && name !== undefined && value !== undefined) found.set(name.toLowerCase(), value)
  }
  return found
}

/** The fields of the file credentials.json. */
export interface ServiceAccountKey {
  client_email: string
  private_key: string
  private_key_id?: string
}

/** Parses the key file. Throws an Error that names the missing field, without any value of the file. */
export function parseServiceAccount(text: string): ServiceAccountKey {
  const file = parsed(text) as Partial<ServiceAccountKey> & { type?: string }
  if (file.type !== undefined && file.type !== 'service_account')
    throw new Error(
      `the file credentials.json is of the type ${JSON.stringify(file.type)}: give the key of a service account`,
    )
  const { client_email, private_key } = file
  if (client_email === undefined || private_key === undefined)
    throw new Error(
      'the file credentials.json lacks client_email or private_key: give the JSON key of a service account',
    )
  return { client_email, private_key, private_key_id: file.private_key_id }
}

function parsed(text: string): object {
  try {
    return JSON.parse(text) as object
  } catch {
    throw new Error('the file credentials.json is not JSON: give the JSON key of a service account')
  }
}
