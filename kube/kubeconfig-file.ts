import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { ClusterAccessError } from './errors.ts'
import { type KubeConfig, kubeConfigSchema } from './kubeconfig-schema.ts'

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

async function readKubeConfig(path: string): Promise<KubeConfigFile | undefined> {
  const text = await readText(path)
  if (text === undefined) return undefined
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
    return parse(text)
  } catch (cause) {
    const [where = ''] = (cause as Error).message.split('\n')
    throw new ClusterAccessError(`${path} is not valid YAML: ${where.replace(/:$/, '')}`, { cause })
  }
}
