import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '@cloudless/base';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import type { ControlRequest, ProxySettings } from './control-messages.js';
import { ControlServer, type ControlHandler } from './control-server.js';
import { NETWORK_FOLDER, NodeNetwork } from './node-network.js';

describe('an agent that stops while it connects to its network proxy', () => {
  const before = process.cwd();
  let dataDir: string;
  let server: ControlServer | undefined;
  beforeEach(() => {
    dataDir = mkdtempSync(join(tmpdir(), 'cloudless-network-'));
    mkdirSync(join(dataDir, NETWORK_FOLDER));
    process.chdir(join(dataDir, NETWORK_FOLDER)); // as the process of a proxy does
  });
  afterEach(() => {
    server?.close();
    process.chdir(before);
    rmSync(dataDir, { recursive: true });
  });

  it.each(['reload', 'status'] as const)('ends the proxy during "%s"', async (moment) => {
    const settings: ProxySettings = {
      ...{ nodeId: 'node-1', zone: '', region: '', hostId: 'h', dataDir, usesTls: false },
      coordinators: ['http://127.0.0.1:8080'],
    };
    const requests: ControlRequest['type'][] = [];
    let closed: (() => void) | undefined;
    const isClosed = new Promise<void>((resolve) => (closed = resolve));
    const answer: ControlHandler['answer'] = async ({ type }) => {
      requests.push(type);
      if (type === moment) void network.close(true).then(closed);
      if (type === 'shutdown') setImmediate(() => server?.close());
      return { type: 'done' };
    };
    const handler = { settings: () => settings, answer, acceptRelay: () => undefined };
    server = await ControlServer.listen(handler, silentLog);
    const network = new NodeNetwork({
      ...{ settings, proxyCommand: ['/bin/false'], advertise: '', isRequired: false },
      ...{ clock: systemClock, random: systemRandom, log: silentLog },
    });
    await isClosed;
    expect(requests.at(-1)).toBe('shutdown');
  });
});
