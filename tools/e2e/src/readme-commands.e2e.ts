import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { RealCluster } from './support/cluster.js';
import { findBundle, repository, runToEnd } from './support/processes.js';

/** Returns the commands of the tour in README.md, in order. */
function readTourCommands(): string[] {
  const readme = readFileSync(join(repository, 'README.md'), 'utf8');
  return [...readme.matchAll(/```sh tour\n([\s\S]*?)```/g)].flatMap(([, block = '']) =>
    block.trim().split('\n'),
  );
}

/** Texts that the output of a command must contain, when the exit code alone proves too little. */
const EXPECTED_TEXTS: Readonly<Record<string, readonly string[]>> = {
  'npx cloudlessctl workload list': ['hello', '3/3'],
  'npx cloudlessctl node list': ['agent-1', 'zone-c'],
  'npx cloudlessctl events --limit 20': ['RolloutCompleted'],
  "npx cloudlessctl exec hello -- node -p 'process.env.GREETING'": ['version two'],
  'npx cloudlessctl logs hello --tail 5': ['listening on'],
  'npx cloudlessctl top replica': ['REQUEST/LIMIT', 'hello'],
};

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
  expect(
    await cluster.runCtl('apply', '-f', join(repository, 'examples/hello.yaml'), '--wait'),
  ).toMatchObject({ code: 0 });
});
afterAll(() => cluster.stop());

describe('commands in README.md', () => {
  it('are more than 10', () => {
    expect(readTourCommands().length).toBeGreaterThan(10);
  });

  it.each(readTourCommands())('run as documented: %s', async (command) => {
    const localCommand = command
      .replace('npx cloudlessctl', `'${process.execPath}' '${findBundle('cloudlessctl')}'`)
      .replace('npx buf', join(repository, 'node_modules/.bin/buf'))
      .replace('http://127.0.0.1:8080', cluster.url)
      .replace('http://127.0.0.1:8081', cluster.opsUrl);
    const { code, stdout, stderr } = await runToEnd('bash', ['-c', localCommand], {
      env: {
        CLOUDLESS_SERVER: cluster.url,
        CLOUDLESS_CONFIG: join(cluster.directory, 'none.yaml'),
        NO_COLOR: '1',
      },
    });
    expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.length).toBeGreaterThan(0);
    for (const text of EXPECTED_TEXTS[command] ?? []) expect(stdout).toContain(text);
  });
});
