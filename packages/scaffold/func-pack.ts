import { type Files, filesOf, projectFiles } from './project.ts'

const TEMPLATE = 'typescript/reconciler'
/** Files that `func` or the image replaces. */
const LEFT_OUT = /^(?:Dockerfile|README\.md|AGENTS\.md|deploy\/|\.github\/)/
const WEBSITE = { kind: 'Website', singular: 'website', plural: 'websites', group: 'example.com' }

/**
 * Returns a language pack for Knative's `func`, keyed by path: the project of the template `resource`, which serves its
 * function over HTTP when it starts. The name of the runtime's folder is one that the builders of `func` know.
 */
export async function funcPack(version: string): Promise<Files> {
  const project = await projectFiles({
    template: 'resource',
    project: 'reconciler',
    names: WEBSITE,
    fairlead: `^${version}`,
  })
  const kept = [...project].filter(([path]) => !LEFT_OUT.test(path))
  const files = new Map([...kept, ...(await filesOf('func'))])
  files.set('package.json', startable(files.get('package.json') ?? ''))
  return new Map([...files].map(([path, text]) => [`${TEMPLATE}/${path}`, text]))
}

function startable(text: string): string {
  const { scripts, ...manifest } = JSON.parse(text) as { scripts: Record<string, string> }
  const serve = 'serve -f src/index.ts'
  const own = { start: `fairlead ${serve}`, image: `fairlead image --start '${serve}'` }
  return `${JSON.stringify({ ...manifest, scripts: { ...scripts, ...own } }, null, 2)}\n`
}
