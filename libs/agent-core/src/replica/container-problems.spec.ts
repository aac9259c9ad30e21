import { silentLog, toContainerId, type Log } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import type { ContainerRequest } from '@cloudless/runtime';
import type { FakeRuntime } from '@cloudless/runtime/testing';
import { aNodeNetwork, aStartOrder, AgentTestBed } from '../testing/index.js';

const PROBLEM = 'names of services do not resolve in this process: Operation not permitted';

/** A node with a DNS server, whose runtime starts processes without DNS settings. */
class RestrictedBed extends AgentTestBed {
  readonly warnings: string[] = [];
  override log: Log = {
    ...silentLog,
    warn: (message, fields) => void this.warnings.push(`${message}: ${String(fields?.['error'])}`),
    child: () => this.log,
  };
  override network: AgentTestBed['network'] = aNodeNetwork({
    findServices: async () => ({ services: [], dns: { server: '10.96.0.10', domain: 'test' } }),
  });

  constructor() {
    super();
    const { runtime } = this;
    const start = async (request: ContainerRequest) => ({
      ...(await runtime.start(request)),
      problems: [PROBLEM],
    });
    this.runtime = Object.assign(Object.create(runtime) as FakeRuntime, { start });
  }
}

describe('a process on a node with a DNS server', () => {
  it('is started with the server, and runs when the runtime cannot apply it, which the agent logs', async () => {
    const bed = new RestrictedBed();
    await bed.start();
    bed.coordinator.sendOrder(aStartOrder());
    await settle();
    await bed.clock.advance(0);
    const { containerId } = bed.requireReport();
    expect(bed.machine.requireRequest(toContainerId(containerId)).network).toMatchObject({
      dnsServers: ['10.96.0.10'],
    });
    expect(bed.summarizeReport()).toMatchObject({ ready: true, restarts: 0 });
    expect(bed.warnings).toEqual([`container started with a problem: ${PROBLEM}`]);
  });
});
