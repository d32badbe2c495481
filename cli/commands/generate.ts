import { existsSync } from 'node:fs'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, extname, isAbsolute, join, normalize } from 'node:path'
import type { KubeObject } from '#contracts'
import { parseReference } from '#image'
import {
  bundlePackage,
  functionPolicies,
  functionRbac,
  functionsChart,
  type KnativeOptions,
  knativeManifests,
  labelled,
  olmBundle,
  type PackageJson,
  platformRbac,
  reconcilerCrd,
  refuseBreaking,
  sortedDefinitions,
  webhookObjects,
  yamlOf,
} from '#install'
import { UsageError } from '#process/exit'
import {
  demandFunctions,
  forcedInstall,
  functionNamed,
  loadFunctions,
  namableFunctions,
  type Selection,
} from '#process/functions'
import { type CustomResourceDefinition, isResource, manifest, type Reconciler } from '#sdk'
import { examplesIn, objectsIn } from './manifests.ts'

export type CrdsOptions = Selection & { platform: boolean; compatibleWith: string[]; new: string[] }
export type ManifestsOptions = Selection & { to: string; force: boolean }
export type KnativeOfOptions = Selection & OfImage & Omit<KnativeOptions, 'modules' | 'shard'>

/** Returns the CustomResourceDefinitions of the functions and the policies of their rules, for `kubectl apply --server-side -f -`. */
export async function generateCrds(options: CrdsOptions): Promise<string> {
  const functions = await (options.platform ? loadFunctions : demandFunctions)(options)
  await refuseBreakingChanges(functions, options)
  const objects = [...(options.platform ? [reconcilerCrd()] : []), ...definitionsWithPolicies(functions)]
  return (await withReport(functions, objects)).trimEnd()
}

/** A file cannot prove that the API server reaches the webhook, so it has no definition that needs it. */
const definitionsWithPolicies = (functions: readonly Reconciler[]): object[] => [
  ...sortedDefinitions(functions).plain,
  ...functionPolicies(functions),
]

const CHECKED_BY = {
  schema: 'the schema',
  definition: 'the CustomResourceDefinition',
  policy: 'a ValidatingAdmissionPolicy',
  mutation: 'a MutatingAdmissionPolicy (Kubernetes 1.36)',
}

const appliedElsewhere = (functions: readonly Reconciler[]): string[] => [
  ...sortedDefinitions(functions).converted.map(
    ({ spec }) =>
      `${spec.names.kind} has conversions: fairlead install --only-conversions applies its definition, when the API server reaches the webhook`,
  ),
  ...functions.flatMap(({ for: kind }) =>
    isResource(kind) && kind.judge !== undefined
      ? `${kind.kind} has admit: fairlead install --only-conversions makes the API server ask it, when it reaches the webhook`
      : [],
  ),
]

/** Returns the objects as YAML, after a comment that names what checks each rule, and why. */
async function withReport(functions: readonly Reconciler[], objects: readonly object[]): Promise<string> {
  const lines = functions.flatMap(({ for: kind }) => {
    if (!isResource(kind)) return []
    const rules = kind.rules.map((rule) => {
      const because = 'because' in rule ? `, because ${rule.because}` : ''
      return `${kind.kind}: ${rule.title}: ${CHECKED_BY[rule.in]}${because}`
    })
    const inCode = kind.codeChecks.map(
      (path) =>
        `${kind.kind}: ${path} has a check in code: runs make it, and no write is refused, which needs a webhook`,
    )
    const validated = `${kind.kind}: validate: fairlead check and runs ask it, and writes are refused only by the webhook of fairlead admit`
    return [...rules, ...inCode, ...(kind.validate === undefined ? [] : [validated])]
  })
  const elsewhere = appliedElsewhere(functions)
  return `${[...new Set([...lines, ...elsewhere])].map((line) => `# ${line}\n`).join('')}${await yamlOf(objects)}`
}

/**
 * Rejects with all breaking changes for objects that are stored under an earlier definition. Also rejects a definition
 * without an earlier version: the check must not pass because of a wrong file.
 */
async function refuseBreakingChanges(
  functions: readonly Reconciler[],
  { compatibleWith: files, new: brandNew, ...selection }: Selection & Pick<CrdsOptions, 'compatibleWith' | 'new'>,
  shard?: string,
): Promise<void> {
  if (files.length === 0) return
  const earlier = (await Promise.all(files.map(objectsIn))).flat().filter(isDefinition)
  for (const [name, crd] of functions.flatMap((one) =>
    sortedDefinitions([one]).plain.map((crd) => [one.name, crd] as const),
  )) {
    const known = earlier.filter(({ metadata }) => metadata.name === crd.metadata.name)
    if (known.length === 0 && !brandNew.includes(crd.metadata.name))
      throw new UsageError(
        `the definition ${crd.metadata.name} of function ${name} is not in ${files.join(', ')}: give the file that has it, or --new ${crd.metadata.name} where nothing is stored under it yet`,
      )
    for (const before of known) refuseBreaking(before, crd, forcedInstall(selection, { FAIRLEAD_SHARD: shard }))
  }
}

const isDefinition = (object: KubeObject): object is CustomResourceDefinition =>
  object.kind === 'CustomResourceDefinition'

/**
 * Writes all that `kubectl apply -k` needs for the functions into a folder, and returns the paths: what `install` applies
 * beside the platform. Keeps a kustomization.yaml that is there. Writes nothing if a definition has a breaking change.
 */
export async function generateManifests(
  options: ManifestsOptions,
  shard: string | undefined,
  warn: (line: string) => void,
): Promise<string[]> {
  const { to, force } = options
  const crds = join(to, 'crds.yaml')
  const functions = await demandFunctions(options)
  if (!force && existsSync(crds)) {
    const brandNew = sortedDefinitions(functions).plain.map(({ metadata }) => metadata.name)
    await refuseBreakingChanges(functions, { ...options, compatibleWith: [crds], new: brandNew }, shard)
  }
  const reconcilers = functions.map((one) => labelled(manifest(one), shard))
  const objects = {
    'rbac.yaml': reconcilers.flatMap(functionRbac),
    'reconcilers.yaml': reconcilers,
  }
  const definitions = definitionsWithPolicies(functions)
  const files = new Map<string, string>()
  if (definitions.length > 0) files.set('crds.yaml', await withReport(functions, definitions))
  for (const line of appliedElsewhere(functions)) warn(`fairlead generate: ${line}`)
  for (const [name, content] of Object.entries(objects)) files.set(name, await yamlOf(content))
  const kustomization = join(to, 'kustomization.yaml')
  const kept = await readFile(kustomization, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
  if (kept === undefined) files.set('kustomization.yaml', await kustomizationOf([...files.keys()]))
  for (const name of files.keys())
    if (name !== 'kustomization.yaml' && kept?.includes(name) === false)
      warn(`fairlead generate: ${kustomization} does not name ${name}, so kubectl apply -k does not apply it`)
  return writeFiles(to, files)
}

const kustomizationOf = async (resources: readonly string[]): Promise<string> => `\
# Written once, and yours from then on. The platform brings the CustomResourceDefinition of Reconciler.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
${await yamlOf({ resources })}\
# Who deletes a definition deletes all its objects: neither Argo CD nor Flux does, whatever becomes of this folder.
patches:
  - target: { kind: CustomResourceDefinition }
    patch: |
      - op: add
        path: /metadata/annotations
        value: { argocd.argoproj.io/sync-options: 'Prune=false,Delete=false', kustomize.toolkit.fluxcd.io/prune: disabled }
`

/** Returns the RBAC that the functions need, for `kubectl apply -f -`. */
export async function generateRbac(options: Selection): Promise<string> {
  const rights = (await loadFunctions(options)).flatMap((one) => functionRbac(manifest(one)))
  return (await yamlOf([...platformRbac(), ...rights])).trimEnd()
}

export interface WebhookOptions extends Selection, OfImage {
  image: string
}

/** Returns what runs the webhook of the functions' conversions, for `kubectl apply -f -`. */
export async function generateWebhook(options: WebhookOptions): Promise<string> {
  const functions = await demandFunctions(options)
  const { image, builtin } = options
  const objects = webhookObjects(functions, { image, builtin, modules: modulesInImage(options) })
  if (objects.length === 0)
    throw new UsageError('no resource of these functions has a conversion ("convert"), so nothing would call a webhook')
  return (await yamlOf(objects)).trimEnd()
}

/** Returns a Knative Service for each function, or for the named one, and the Reconciler that calls it. */
export async function generateKnative(
  name: string | undefined,
  options: KnativeOfOptions,
  shard: string | undefined,
): Promise<string> {
  const isNamed = name !== undefined && options.builtin.length === 0
  const all = await (isNamed ? namableFunctions(options.function, options.kinds) : demandFunctions(options))
  const functions = name === undefined ? all : [functionNamed(all, name)]
  const modules = modulesInImage(options)
  return (await yamlOf(functions.flatMap((one) => knativeManifests(one, { ...options, modules, shard })))).trimEnd()
}

interface OfImage {
  /** The path of the functions in the image, if it differs from that of `-f`. */
  module?: string
}

/** Returns the modules that pods load: `fairlead image` packs the files of a project under their paths in it. */
function modulesInImage({ function: files, module }: Selection & OfImage): readonly string[] {
  if (module !== undefined) return [module]
  const outside = files.find((file) => isAbsolute(file) || normalize(file).startsWith('..'))
  if (outside === undefined) return files
  throw new UsageError(`-f ${outside} is no path in an image: run this in the folder of the project, or give --module`)
}

export interface ChartOptions extends Selection, OfImage {
  to: string
  image: string
  name?: string
  chartVersion?: string
}

/** Writes a chart of the functions into a folder, and returns the paths of its files. */
export async function generateChart(options: ChartOptions, shard: string | undefined): Promise<string[]> {
  const { to, image } = options
  const of = existsSync('package.json') ? await packageJson('package.json') : {}
  const { name = nameIn(of) ?? 'functions', chartVersion: version = of.version ?? '0.1.0' } = options
  if (!/^\d+\.\d+\.\d+(?:[-+][\w.+-]+)?$/.test(version))
    throw new UsageError(`"${version}" is not a version of a chart: write it like 1.2.0`)
  const { registry, repository, tag = 'latest', digest = '' } = parseReference(image)
  const functions = await demandFunctions(options)
  const files = await functionsChart(functions, {
    name,
    version,
    description: `Functions of Fairlead: ${functions.map((one) => one.name).join(', ')}`,
    image: { repository: `${registry}/${repository}`, tag, digest },
    modules: modulesInImage(options),
    builtin: options.builtin,
    shard,
  })
  return writeFiles(to, files)
}

/** The name of a package, without its scope, as a name of Kubernetes. Undefined if it has neither letters nor digits. */
const nameIn = ({ name = '' }: PackageJson): string | undefined =>
  name
    .replace(/^@.*\//, '')
    .toLowerCase()
    .match(/[a-z0-9]+/g)
    ?.join('-')

export interface BundleCommandOptions extends Selection, OfImage {
  to: string
  image: string
  package: string
  examples: string[]
  namespace: string
  icon?: string
  replaces?: string
}

const MEDIA_TYPES: Record<string, string> = {
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.gif': 'image/gif',
}

/** Writes a bundle for OLM into a folder, replaces an earlier one, and returns the paths of its files. */
export async function generateBundle(options: BundleCommandOptions, shard: string | undefined): Promise<string[]> {
  const { to, image, examples, icon, replaces, namespace } = options
  const about = bundlePackage(await packageJson(options.package), options.package)
  const functions = await demandFunctions(options)
  const files = await olmBundle(functions, {
    about,
    image,
    modules: modulesInImage(options),
    namespace,
    examples: (await Promise.all(examples.map(examplesIn))).flat(),
    createdAt: createdAt(process.env),
    icon: icon === undefined ? undefined : await iconOf(icon),
    replaces,
    shard,
  })
  // Removes manifests of a function that no longer exists.
  for (const part of ['manifests', 'metadata']) await rm(join(to, part), { recursive: true, force: true })
  return writeFiles(to, files)
}

async function packageJson(file: string): Promise<PackageJson> {
  if (!existsSync(file)) throw new UsageError(`the file ${file} does not exist: name a package.json with --package`)
  return JSON.parse(await readFile(file, 'utf8')) as PackageJson
}

async function iconOf(file: string): Promise<{ base64data: string; mediatype: string }> {
  const mediatype = MEDIA_TYPES[extname(file)]
  if (mediatype === undefined || !existsSync(file))
    throw new UsageError(
      `the icon ${file} cannot be read: name an existing file that ends in ${Object.keys(MEDIA_TYPES).join(', ')}`,
    )
  return { base64data: (await readFile(file)).toString('base64'), mediatype }
}

/** Returns the time of SOURCE_DATE_EPOCH, or the current time. */
function createdAt({ SOURCE_DATE_EPOCH: seconds }: NodeJS.ProcessEnv): string {
  const time = seconds === undefined || seconds === '' ? new Date() : new Date(Number(seconds) * 1000)
  if (Number.isNaN(time.getTime()))
    throw new UsageError(`SOURCE_DATE_EPOCH is "${seconds}": give whole seconds since 1970`)
  return time.toISOString().replace(/\.\d+Z$/, 'Z')
}

/** Writes files, by their paths below a folder, and returns where they are. */
const writeFiles = (to: string, files: ReadonlyMap<string, string>): Promise<string[]> =>
  Promise.all(
    [...files].map(async ([path, text]) => {
      const file = join(to, path)
      await mkdir(dirname(file), { recursive: true })
      await writeFile(file, text)
      return file
    }),
  )
