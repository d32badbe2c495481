import type { TemplateName } from './project.ts'

/** Returns the next commands, for the package manager that has started the command (`npm_config_user_agent`). */
export function nextSteps(template: TemplateName, folder: string, userAgent = ''): string {
  const manager = /^(pnpm|yarn|bun)\//.exec(userAgent)?.[1] ?? 'npm'
  const enter = folder === '.' ? [] : [`cd ${folder}`]
  const steps: Record<TemplateName, string[]> = {
    resource: [...ofNode(manager)],
    objects: [...ofNode(manager)],
    existing: [...ofNode(manager)],
    'http-python': ['python3 -m unittest', 'PORT=8080 python3 server.py'],
    'http-go': ['go test ./...', 'PORT=8080 go run .'],
  }
  return [...enter, ...steps[template]].map((step) => `  ${step}\n`).join('')
}

const ofNode = (manager: string): string[] => [
  `${manager} install`,
  `${manager} test                # without a cluster`,
  `${manager} run dev             # on a Kubernetes of this machine; the first start builds it`,
  `${manager} run image -- --push REGISTRY/NAME:TAG   # without a container engine`,
]
