import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { lockDataDirectory } from './data/data-directory.js';
import { NETWORK_FOLDER } from './network/proxy-program.js';
import { AgentProcess } from './testing/agent-process.js';

/** Returns the ids of the processes that have a text in their command line. */
function findProcesses(text: string): readonly string[] {
  const ids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return ids.filter((id) => {
    try {
      return readFileSync(`/proc/${id}/cmdline`, 'utf8').includes(text);
    } catch {
      return false; // the process has ended meanwhile
    }
  });
}

const linux = process.platform === 'linux' ? describe : describe.skip;

linux('a start of cloudless-agent that does not succeed', () => {
  let dataDir: string;
  let network: string;
  beforeEach(() => {
    dataDir = mkdtempSync(join(tmpdir(), 'cloudless-start-'));
    network = join(dataDir, NETWORK_FOLDER);
  });
  afterEach(() => rmSync(dataDir, { recursive: true }));

  const start = (coordinator: string): AgentProcess =>
    new AgentProcess(
      ...['run', '--name', 'agent-1', '--coordinator', coordinator, '--data-dir', dataDir],
      ...['--runtime', 'process', '--network', 'auto'],
    );
  const untilNoProxyRuns = async (): Promise<void> => {
    while (findProcesses(network).length > 0) await new Promise(setImmediate);
  };

  it('ends the proxy that it has started when the machine has no join token', async () => {
    expect(await start('https://127.0.0.1:1').waitForExit()).toBe(2);
    expect(existsSync(join(network, 'proxy.err'))).toBe(true); // the proxy was started
    await untilNoProxyRuns();
  });

  it('ends the proxy that it has started when a signal comes', async () => {
    const agent = start('http://127.0.0.1:1');
    while (!existsSync(join(network, 'proxy.err'))) await new Promise(setImmediate);
    expect(await agent.end('SIGTERM')).toBe(0);
    await untilNoProxyRuns();
  });

  it('starts no proxy in the data directory of another agent', async () => {
    const held = await lockDataDirectory(dataDir);
    const agent = start('http://127.0.0.1:1');
    expect(await agent.waitForExit()).toBe(1);
    expect(agent.stderr).toEqual([
      `cloudless-agent: data directory ${dataDir} is in use by another agent, process ${process.pid}`,
    ]);
    expect(existsSync(network)).toBe(false);
    await held.release();
  });
});
