import { consoleRbac, consoleWritesRbac } from '../console-rbac.ts'
import { CONTAINER, POD, processOf } from './process.ts'
import { get, manifestsIn, objectOf, patched, set } from './sources.ts'
import { Templated } from './templated.ts'

const NAME = 'fairlead-console'
const WRITES = '.Values.console.writes'
const SECRET = `${POD}/volumes/0/secret/secretName`

/** Returns the objects of deploy/console, with the component deploy/console/writes if the values enable it. */
export async function consoleTemplate(): Promise<string> {
  const reads = await manifestsIn('console/console.yaml')
  const writes = objectOf(await patched(reads, 'console/writes/kustomization.yaml'), 'Deployment', NAME)
  const template = new Templated()
  const deployment = objectOf(reads, 'Deployment', NAME)
  const [reader, writer] = [deployment, writes].map((one) => String(get(one, SECRET)))
  set(deployment, SECRET, template.value(`${WRITES} | ternary "${writer}" "${reader}"`))
  const added = (get(writes, `${CONTAINER}/env`) as { name: string; value: string }[]).at(-1)
  const variables = [
    template.items(`{{- if ${WRITES} }}`, `- name: ${added?.name}`, `  value: "${added?.value}"`, '{{- end }}'),
    listed(template, 'FAIRLEAD_CONSOLE_HOSTS', 'hosts'),
    listed(template, 'FAIRLEAD_CONSOLE_AUDIENCES', 'audiences'),
  ]
  const service = objectOf(reads, 'Service', NAME)
  const texts = [
    await processOf('console', reads, template, variables),
    await template.render([service, ...consoleRbac()]),
    await template.render(consoleWritesRbac(), WRITES),
    await template.render(await manifestsIn('console/network.yaml'), '.Values.networkPolicy.enabled'),
  ]
  return `{{- if .Values.console.enabled }}\n${texts.join('---\n')}{{- end }}\n`
}

const listed = (template: Templated, variable: string, value: string): string =>
  template.items(
    `{{- with .Values.console.${value} }}`,
    `- name: ${variable}`,
    '  value: {{ join "," . | quote }}',
    '{{- end }}',
  )
