import { type Command, InvalidArgumentError, Option } from 'commander'
import type { BackupOptions, RecoverOptions, RestoreOptions, StoreOptions } from '../actions/etcd-agent.ts'
import { type CommandContext, whole } from '../options.ts'

/** The longest accepted time-out: 7 days. */
const LONGEST_SECONDS = 604_800

export function etcdAgentCommands(program: Command, context: CommandContext): void {
  const group = program
    .command('etcd-agent')
    .description('moves snapshots of etcd: what the pods of EtcdBackup and EtcdRestore run')

  const withLimits = (command: Command, seconds: number) =>
    command
      .option('--timeout <seconds>', 'of the whole run', whole(1, LONGEST_SECONDS), seconds)
      .option('--report <file>', 'where the result is written as well: the termination message of a pod')

  const withStore = (command: Command, seconds: number) =>
    withLimits(command, seconds)
      .addOption(
        new Option('--store <kind>', 'what the store speaks').choices(['s3', 'abs', 'gcs']).makeOptionMandatory(),
      )
      .requiredOption('--path <bucket/key>', 'of the object')
      .requiredOption('--store-secret <folder>', 'the keys of the Secret with the credentials, as files')
      .option('--endpoint <url>', 'of the store, instead of its provider')
      .option('--path-style', 's3: the bucket is in the path of the URL, not in its host', false)

  const withMembers = (command: Command) =>
    command
      .requiredOption('--endpoints <urls>', 'of members, with commas between', urls)
      .option('--etcd-tls <folder>', 'etcd-client.crt, etcd-client.key and etcd-client-ca.crt')

  const withSeed = (command: Command) =>
    command
      .requiredOption('--data-dir <folder>', 'of the member; it must be missing or empty')
      .requiredOption('--name <name>', 'of the member')
      .requiredOption('--peer-url <url>', 'of the member')
      .requiredOption('--token <text>', 'of the new cluster: another one than before')
      .option('--bump-revision <n>', 'added to the revision, so that watchers notice', whole(0, 1e12), 1_000_000_000)
      .option('--etcdutl <file>', 'the program that makes the directory', 'etcdutl')

  withMembers(withStore(group.command('backup'), 60))
    .description('store a snapshot of the member with the highest revision; it is visible when all of it is there')
    .option('--owner <name>', 'whose backups these are: those of others are never deleted', 'fairlead')
    .option('--periodic', 'append revision and time to the key: PATH_v12_2026-11-22-18:00:00', false)
    .option('--keep <n>', 'periodic: how many to keep (default: all)', whole(1, 10_000))
    .action(async (options: BackupOptions) => {
      const { runBackup } = await import('../actions/etcd-agent.ts')
      await runBackup(options, context)
    })

  withStore(group.command('verify'), 3600)
    .description('read a snapshot to its end, and compare it with its own digest')
    .action(async (options: StoreOptions) => {
      const { runVerify } = await import('../actions/etcd-agent.ts')
      await runVerify(options, context)
    })

  withSeed(withStore(group.command('restore'), 3600))
    .description('make the data directory of the first member of a new cluster; does nothing if this token has made it')
    .option('--sha256 <digest>', 'restore these bytes and no others', digest)
    .action(async (options: RestoreOptions) => {
      const { runRestore } = await import('../actions/etcd-agent.ts')
      await runRestore(options, context)
    })

  withSeed(withMembers(withLimits(group.command('recover'), 3600)))
    .description(
      'restore, from the member with the highest revision of those that answer, for a cluster that has lost its quorum',
    )
    .option('--revision <n>', 'read no member that has less', whole(0, Number.MAX_SAFE_INTEGER), 0)
    .action(async (options: RecoverOptions) => {
      const { runRecover } = await import('../actions/etcd-agent.ts')
      await runRecover(options, context)
    })
}

const urls = (text: string): string[] =>
  text.split(',').map((url) => {
    if (/^https?:$/.test(URL.parse(url)?.protocol ?? '')) return url
    throw new InvalidArgumentError(`${JSON.stringify(url)} is not a URL such as http://example-client:2379.`)
  })

const digest = (text: string): string => {
  if (/^[0-9a-f]{64}$/.test(text)) return text
  throw new InvalidArgumentError('give 64 hexadecimal digits in lower case.')
}
