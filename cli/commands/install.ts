import {
  checkDefinitions,
  type Installed,
  install,
  installCertificates,
  installConversions,
  withDeclared,
} from '#install'
import type { KubeClient } from '#kube'
import type { Config } from '#process/config'
import { EXIT, table, UsageError } from '#process/exit'
import { forcedInstall, loadFunctions, type Selection } from '#process/functions'
import { openKube } from '#process/kube'
import type { CommandContext } from '../options.ts'

export interface InstallOptions extends Selection {
  output: 'table' | 'json'
  revision?: string
  url?: string
  force: boolean
  team: boolean
  natsCertificates: boolean
  clusterUsers?: readonly string[]
  check: boolean
  onlyNatsCertificates: boolean
  onlyConversions: boolean
}

export async function installFunctions(
  options: InstallOptions,
  { config, print, setExitCode }: CommandContext,
): Promise<void> {
  const settings = await config()
  await using kube = await openKube(settings)
  const installed = await applied(kube, options, settings, () => setExitCode(EXIT.failed))
  const rows = installed.map(({ kind, name, result }) => [kind, name, result])
  print(options.output === 'json' ? JSON.stringify(installed, null, 2) : table(['KIND', 'NAME', 'RESULT'], rows))
}

async function applied(
  kube: KubeClient,
  options: InstallOptions,
  settings: Config,
  failed: () => void,
): Promise<Installed[]> {
  const { check, natsCertificates, onlyNatsCertificates, onlyConversions, team, url } = options
  if (url !== undefined && !/^https?:\/\/\S+$/.test(url))
    throw new UsageError(`--url is "${url}": give an address, such as http://{name}.functions.svc`)
  if (team && (natsCertificates || onlyNatsCertificates))
    throw new UsageError('--team installs functions within namespaces: the platform team makes the certificates')
  if (options.clusterUsers !== undefined && !natsCertificates && !onlyNatsCertificates)
    throw new UsageError('--cluster-users goes with --nats-certificates or --only-nats-certificates')
  const parts = [
    check && '--check',
    onlyNatsCertificates && '--only-nats-certificates',
    onlyConversions && '--only-conversions',
  ]
  const [one, other] = parts.filter((part) => part !== false)
  if (other !== undefined) throw new UsageError(`${one} and ${other} are different parts: give one of them`)
  if (onlyNatsCertificates) return installCertificates(kube, options.clusterUsers)
  const selected = await loadFunctions(options)
  if (options.adapter !== undefined && (url !== undefined || team))
    throw new UsageError('--adapter is for dispatchers and all namespaces: leave out --url and --team')
  const forcedBy = forcedInstall(options, settings) + (team ? ' --team' : '')
  const said = new Set<string>()
  const says = (line: string): void => {
    if (!said.has(line)) process.stderr.write(`fairlead: ${line}\n`)
    said.add(line)
  }
  const refuses = (line: string): void => {
    says(line)
    failed()
  }
  const functions = await withDeclared(kube, selected, { says, refuses })
  if (onlyConversions) return installConversions(kube, functions, { ...options, forcedBy, says })
  const hasFormer = functions.some(({ declaredBy, succeeds }) => declaredBy !== undefined || succeeds !== undefined)
  const marked = check || !hasFormer ? 0 : await (await import('./hand-over.ts')).handOver(kube, functions)
  if (marked > 0) says(`${marked} objects that were made before are marked as those of these functions`)
  if (!check) return install(kube, functions, { ...options, forcedBy, says, shard: settings.FAIRLEAD_SHARD })
  await checkDefinitions(kube, functions, forcedBy)
  return []
}
