import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

it.each(['deploy/images/fairlead', 'packages/scaffold/templates/project'])(
  'the Dockerfile of %s starts what `fairlead image` starts, as the same user',
  (folder) => {
    const lines = readFileSync(`${folder}/Dockerfile`, 'utf8').split('\n')
    expect(lines).toContain('WORKDIR /app')
    expect(lines).toContain('USER 65532:65532')
    expect(lines.join('\n')).toMatch(/^RUN npm ci .* && rm -rf node_modules\/@kubernetes\/client-node && \\$/m)
    expect(lines).toContain('ENTRYPOINT ["node", "/app/node_modules/fairlead/cli/bin.js"]')
  },
)
