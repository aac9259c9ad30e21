import { cp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Machines, findMachinesProblem, readHomeFile, type Machine } from './support/machines.js';
import type { RunningProgram } from './support/processes.js';

/** Directory of the coordinator below its home. */
const COORDINATOR_DATA = '.local/state/cloudless/coordinator';
const ADDRESS = '10.88.0.1';
/** A server that writes `up`, and answers with the id of its replica. */
const SERVER = [
  'node',
  '-e',
  `require('node:http').createServer((request, response) => response.end(process.env.CLOUDLESS_REPLICA_ID))
     .listen(process.env.PORT, '127.0.0.1', () => console.log('up'));`,
];
/** Short times, so that a lost machine is replaced soon. */
const COORDINATOR_SETTINGS = {
  CLOUDLESS_COORDINATOR_LEASE: '1500ms',
  CLOUDLESS_COORDINATOR_PING_INTERVAL: '300ms',
  CLOUDLESS_COORDINATOR_LOG_FORMAT: 'json',
};
const AGENT_SETTINGS = {
  CLOUDLESS_AGENT_RUNTIME: 'process',
  CLOUDLESS_AGENT_LOG_FORMAT: 'json',
};

/** The fields of a workload in JSON that the tests use. */
interface WorkloadJson {
  readonly status: {
    readonly readyReplicas?: number;
    readonly replicas: readonly {
      readonly id: string;
      readonly nodeId: string;
      readonly phase: string;
      readonly ready?: boolean;
      readonly restarts?: number;
      readonly failedStarts?: number;
    }[];
  };
}

const problem = findMachinesProblem();
const title = 'coordinator and agents on three machines';
(problem === undefined ? describe : describe.skip)(
  problem === undefined ? title : `${title} (skipped: ${problem})`,
  () => {
    let machines: Machines;
    let first: Machine;
    let agents: readonly Machine[];
    let coordinator: RunningProgram;

    beforeAll(async () => {
      machines = await Machines.create();
      first = await machines.add('m1', ADDRESS);
      agents = [await machines.add('m2', '10.88.0.2'), await machines.add('m3', '10.88.0.3')];
    });
    afterAll(() => machines.remove());

    /** Runs cloudlessctl on the machine of the coordinator, and expects success. */
    const ctl = async (command: string, on = first): Promise<string> => {
      const { code, stdout, stderr } = await on.run(`cloudlessctl ${command}`);
      if (code !== 0) throw new Error(`cloudlessctl ${command}: ${code}: ${stderr}`);
      return stdout;
    };
    const readWorkload = async (): Promise<WorkloadJson['status']> =>
      (JSON.parse(await ctl('workload get web -o json')) as WorkloadJson).status;
    const readReady = async (): Promise<readonly { id: string; nodeId: string }[]> =>
      (await readWorkload()).replicas.filter(({ ready }) => ready === true);
    /** Polls until a condition holds; the limit is that of the test. */
    const until = async (holds: () => Promise<boolean>): Promise<void> => {
      while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 100));
    };
    const startCoordinator = async (machine: Machine): Promise<RunningProgram> => {
      const program = machine.start(
        'exec cloudless-coordinator --host 0.0.0.0',
        COORDINATOR_SETTINGS,
      );
      await program.waitForLog('coordinator ready');
      return program;
    };

    it('become a cluster with three commands', async () => {
      coordinator = await startCoordinator(first);
      const command = await readHomeFile(first, `${COORDINATOR_DATA}/identity/join-command`);
      expect(command).toContain(`https://${ADDRESS}:8080`);
      const started = agents.map((machine) => machine.start(command, AGENT_SETTINGS));
      for (const agent of started) await agent.waitForLog('session established');
      const token = join(first.home, COORDINATOR_DATA, 'identity/admin.credential');
      await ctl(`login https://${ADDRESS}:8080 --token-file ${token}`);
      const nodes = await ctl('node list --no-headers');
      for (const { name } of agents) expect(nodes).toMatch(new RegExp(`^${name} +Ready`, 'm'));
    });

    it('have one port for other machines without network proxies, that of the coordinator', async () => {
      for (const agent of agents) expect(await agent.listListeners()).toBe('');
      const open = (await first.listListeners())
        .split('\n')
        .filter((line) => !/ (?:127\.0\.0\.1|\[::1\]):\d+ /.test(line))
        .map((line) => line.split(/ +/)[3]);
      expect(open.filter((address) => address !== undefined)).toEqual(['0.0.0.0:8080']);
    });

    it('run a workload with logs, exec and port-forward from the first machine', async () => {
      const file = join(machines.directory, 'web.json');
      await writeFile(
        file,
        JSON.stringify({
          kind: 'Workload',
          name: 'web',
          spec: {
            command: SERVER,
            replicas: 4,
            ports: [{ name: 'http', containerPort: 80 }],
            preStopDelay: '0s',
            rollout: { minReadyDuration: '0s' },
          },
        }),
      );
      await ctl(`apply -f ${file} --wait`);
      const replicas = await readReady();
      expect(new Set(replicas.map(({ nodeId }) => nodeId))).toEqual(new Set(['m2', 'm3']));
      for (const node of ['m2', 'm3']) {
        const { id = '' } = replicas.find(({ nodeId }) => nodeId === node) ?? {};
        expect(await ctl(`exec ${id} -- printenv CLOUDLESS_REPLICA_ID`)).toBe(`${id}\n`);
        expect(await ctl(`logs ${id} --tail 1`)).toContain('up');
        const forwarding = first.start(`exec cloudlessctl port-forward ${id} 8090:http`);
        await forwarding.waitForLine((line) => line.startsWith('Forwarding'));
        expect((await first.run('curl -s http://127.0.0.1:8090/')).stdout).toBe(id);
        await forwarding.kill('SIGTERM');
      }
    });

    it('replace the replicas of a machine without network, and heal when the machine is back', async () => {
      const [, cut] = agents as readonly [Machine, Machine];
      const before = await readReady();
      machines.setConnected(cut, false);
      await until(async () => {
        const ready = await readReady();
        return ready.length === 4 && ready.every(({ nodeId }) => nodeId === 'm2');
      });
      expect(await ctl('node list --no-headers')).toMatch(/^m3 +Lost/m);
      machines.setConnected(cut, true);
      await until(async () => /^m3 +Ready/m.test(await ctl('node list --no-headers')));
      const stale = before.filter(({ nodeId }) => nodeId === 'm3').map(({ id }) => id);
      expect(stale.length).toBeGreaterThan(0);
      // their processes end: the agent lists no container of them
      await until(async () => {
        const containers = await ctl('get containers --node m3 -o json');
        return stale.every((id) => !containers.includes(`"${id}"`));
      });
      expect(await readReady()).toHaveLength(4);
    });

    it('keep their agents when authority, token secret and store move to another machine', async () => {
      const before = await readReady();
      const backup = join(machines.directory, 'cluster.backup');
      await ctl(`admin backup ${backup}`);
      const saved = join(machines.directory, 'saved-identity');
      await cp(join(first.home, COORDINATOR_DATA, 'identity'), saved, { recursive: true });
      await coordinator.kill('SIGTERM');
      machines.setConnected(first, false);
      await rm(first.home, { recursive: true });
      const spare = await machines.add('m4', ADDRESS);
      const data = join(spare.home, COORDINATOR_DATA);
      await ctl(`admin restore ${backup} --data-dir ${data}`, spare);
      await cp(saved, join(data, 'identity'), { recursive: true });
      coordinator = await startCoordinator(spare);
      first = spare;
      const token = join(data, 'identity/admin.credential');
      await ctl(`login https://${ADDRESS}:8080 --token-file ${token}`);
      await until(async () => {
        const nodes = await ctl('node list --no-headers');
        return agents.every(({ name }) => new RegExp(`^${name} +Ready`, 'm').test(nodes));
      });
      await ctl('admin accept-restored-state');
      const after = await readWorkload();
      expect(after.replicas.map(({ id }) => id).sort()).toEqual(before.map(({ id }) => id).sort());
      const restarted = after.replicas.filter(
        ({ restarts = 0, failedStarts = 0 }) => restarts + failedStarts > 0,
      );
      expect(restarted).toEqual([]);
      const id = before[0]?.id ?? '';
      // over the session of an agent with the new coordinator
      expect(await ctl(`exec ${id} -- printenv CLOUDLESS_REPLICA_ID`)).toBe(`${id}\n`);
    });
  },
);
