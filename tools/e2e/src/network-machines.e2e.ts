import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MachineContainers } from './support/machine-containers.js';
import { Machines, findMachinesProblem, readHomeFile, type Machine } from './support/machines.js';
import type { RunningProgram } from './support/processes.js';

/** Directory of the coordinator below its home. */
const COORDINATOR_DATA = '.local/state/cloudless/coordinator';
const ADDRESS = '10.88.0.1';
/** Text that only replicas send, so that nothing else contains it. */
const CANARY = 'canary-of-the-replicas';
/** A server that answers with the text and the id of its replica. */
const SERVER = [
  'node',
  '-e',
  `require('node:http').createServer((request, response) => response.end(process.env.CLOUDLESS_REPLICA_ID + ' ${CANARY}'))
     .listen(process.env.PORT, '127.0.0.1');`,
];
/** Exit code of curl when nothing listens. */
const REFUSED = 7;
const COORDINATOR_SETTINGS = {
  CLOUDLESS_COORDINATOR_LOG_FORMAT: 'json',
  // A node whose agent returns later than its lease is lost, and its replicas are replaced.
  CLOUDLESS_COORDINATOR_LEASE: '30s',
};
const RECORDER = fileURLToPath(new URL('./support/record_packets.py', import.meta.url));

const LOAD = fileURLToPath(new URL('./support/request-load.cjs', import.meta.url));

/**
 * Returns the command with a /sys that shows the network interfaces of the test machine instead of
 * those of the host: the network proxy looks there for the bridge of the containers.
 */
const withOwnSysfs = (command: string): string => {
  const mounts =
    'mount --rbind /sys/fs/cgroup /mnt && mount -t sysfs sysfs /sys && mount --rbind /mnt /sys/fs/cgroup';
  return `unshare --mount sh -c '${mounts} && exec ${command}'`;
};

/** Last line of the load. */
interface LoadResult {
  readonly count: number;
  readonly failures: readonly string[];
}

interface ServiceJson {
  readonly status: { readonly clusterIp: string; readonly readyEndpoints?: number };
}

const problem = findMachinesProblem();
const title = 'services of a cluster on three machines';
(problem === undefined ? describe : describe.skip)(
  problem === undefined ? title : `${title} (skipped: ${problem})`,
  () => {
    let machines: Machines;
    let first: Machine;
    /** Accepts connections of other proxies, by default. */
    let open: Machine;
    /** Only dials out. */
    let closed: Machine;
    /** Runs containers. */
    let containerHost: Machine;
    let containers: MachineContainers | undefined;
    let coordinator: RunningProgram;
    /** Virtual addresses of the services, whose replicas run on the machine of that name. */
    const addresses = new Map<string, string>();

    beforeAll(async () => {
      machines = await Machines.create();
      first = await machines.add('m1', ADDRESS);
      open = await machines.add('m2', '10.88.0.2');
      closed = await machines.add('m3', '10.88.0.3');
      containerHost = await machines.add('m4', '10.88.0.4');
    });
    afterAll(async () => {
      containers?.remove();
      await machines.remove();
    });

    /** Runs cloudlessctl on the machine of the coordinator, and expects success. */
    const ctl = async (command: string): Promise<string> => {
      const { code, stdout, stderr } = await first.run(`cloudlessctl ${command}`);
      if (code !== 0) throw new Error(`cloudlessctl ${command}: ${code}: ${stderr}`);
      return stdout;
    };
    const call = async (from: Machine, service: string): Promise<string> =>
      (await from.run(`curl -sS --max-time 5 http://${addresses.get(service)}/`)).stdout;
    /** Asks the DNS server of a machine for an address. */
    const resolve = async (on: Machine, name: string): Promise<string> => {
      const program = `const resolver = new (require("node:dns").promises.Resolver)();
        resolver.setServers(["10.96.0.10"]);
        resolver.resolve4("${name}").then(([address]) => console.log(address));`;
      return (await on.run(`${process.execPath} -e '${program}'`)).stdout.trim();
    };
    /** Polls until a condition holds; the limit is that of the test. */
    const until = async (holds: () => Promise<boolean>): Promise<void> => {
      while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 100));
    };
    const startAgent = (
      machine: Machine,
      command: string,
      mesh?: string,
      zone = '',
      runtime: NodeJS.ProcessEnv = { CLOUDLESS_AGENT_RUNTIME: 'process' },
    ): RunningProgram =>
      machine.start(`exec ${command}`, {
        CLOUDLESS_AGENT_ZONE: zone,
        ...runtime,
        CLOUDLESS_AGENT_LOG_FORMAT: 'json',
        CLOUDLESS_AGENT_NETWORK: 'on',
        ...(mesh === undefined ? {} : { CLOUDLESS_AGENT_MESH_LISTEN: mesh }),
      });
    const readAgentPid = (machine: Machine): number =>
      Number(
        readFileSync(join(machine.home, `.local/state/cloudless/agent-${machine.name}/agent.pid`)),
      );
    let joinCommand = '';

    it('have virtual addresses and names on each machine', async () => {
      coordinator = first.start('exec cloudless-coordinator --host 0.0.0.0', COORDINATOR_SETTINGS);
      await coordinator.waitForLog('coordinator ready');
      joinCommand = await readHomeFile(first, `${COORDINATOR_DATA}/identity/join-command`);
      const started = [startAgent(open, joinCommand), startAgent(closed, joinCommand, 'none')];
      for (const agent of started) await agent.waitForLog('session established');
      const token = join(first.home, COORDINATOR_DATA, 'identity/admin.credential');
      await ctl(`login https://${ADDRESS}:8080 --token-file ${token}`);
      for (const { name } of [open, closed]) await ctl(`node label ${name} machine=${name}`);
      for (const { name } of [open, closed]) {
        const file = join(machines.directory, `${name}.json`);
        const spec = {
          ...{ command: SERVER, replicas: 1, placement: { nodeSelector: { machine: name } } },
          ports: [{ name: 'http', containerPort: 80 }],
          expose: [{ name: 'http', port: 80 }],
          ...{ preStopDelay: '0s', rollout: { minReadyDuration: '0s' } },
        };
        writeFileSync(file, JSON.stringify({ kind: 'Workload', name: `on-${name}`, spec }));
        await ctl(`apply -f ${file} --wait`);
        const { status } = JSON.parse(
          await ctl(`service describe on-${name} -o json`),
        ) as ServiceJson;
        addresses.set(name, status.clusterIp);
      }
      await until(async () => (await call(open, 'm2')).includes(CANARY));
      const name = 'on-m2.default.svc.cloudless.internal';
      await until(async () => (await resolve(closed, name)) === addresses.get('m2'));
    });

    /** Expects that packets of `open` have TLS data, and no canary, while `use` makes requests. */
    const expectTlsOnly = async (use: () => Promise<void>): Promise<void> => {
      const file = join(machines.directory, 'packets');
      const recorder = open.start(`exec python3 ${RECORDER} eth0 ${file}`);
      await recorder.waitForLine((line) => line === 'ready');
      await use();
      await recorder.kill('SIGTERM');
      const packets = readFileSync(file);
      expect(packets.includes(Buffer.from([0x17, 0x03, 0x03]))).toBe(true); // TLS application data
      expect(packets.includes(CANARY)).toBe(false);
    };

    it('are reached on other machines, directly and through the relay, encrypted only', async () => {
      await expectTlsOnly(async () => {
        await until(async () => (await call(closed, 'm2')).includes(CANARY));
        await until(async () => (await call(open, 'm3')).includes(CANARY));
      });
    });

    it('are reached by name from a process, and from commands in it', async () => {
      const file = join(machines.directory, 'process.json');
      const names = ['on-m2', 'on-m3.default', 'on-m3.default.svc.cloudless.internal'];
      const requests = names.map((name) => `curl -sS --max-time 5 http://${name}/ && echo`);
      const spec = {
        ...{ command: ['sh', '-c', `${requests.join('; ')}; exec sleep 1000`], replicas: 1 },
        ...{ placement: { nodeSelector: { machine: open.name } } },
        ...{ terminationGracePeriod: '0s', rollout: { minReadyDuration: '0s' } },
      };
      writeFileSync(file, JSON.stringify({ kind: 'Workload', name: 'caller', spec }));
      await ctl(`apply -f ${file} --wait`);
      await until(async () => (await ctl('logs caller')).split(CANARY).length > names.length);
      expect(await ctl('exec caller -- curl -sS --max-time 5 http://on-m3/')).toContain(CANARY);
      await ctl('delete workload caller --wait');
    });

    const itWithContainers = MachineContainers.isPossible ? it : it.skip;
    itWithContainers('are reached by name from a container, encrypted only', async () => {
      containers = MachineContainers.install(containerHost);
      const agent = startAgent(containerHost, withOwnSysfs(joinCommand), undefined, '', {
        CLOUDLESS_AGENT_RUNTIME: 'cri',
        CLOUDLESS_AGENT_CRI_SOCKET: containers.socket,
      });
      await agent.waitForLog('session established');
      const file = join(machines.directory, 'client.json');
      const spec = {
        ...{ image: 'busybox:1', command: ['sleep', '1000'], replicas: 1 },
        ...{ terminationGracePeriod: '0s', rollout: { minReadyDuration: '0s' } },
      };
      writeFileSync(file, JSON.stringify({ kind: 'Workload', name: 'client', spec }));
      await ctl(`apply -f ${file} --wait`);
      await expectTlsOnly(async () => {
        for (const { name } of [open, closed]) {
          // A static busybox resolves names in `nslookup` only, not in `wget`.
          const lookUp = `nslookup on-${name}.default.svc.cloudless.internal >/tmp/answer`;
          const get = `${lookUp} && wget -qO- http://$(sed -n "s/^Address: //p" /tmp/answer)/`;
          await until(async () => {
            const { stdout } = await first.run(`cloudlessctl exec client -- sh -c '${get}'`);
            return stdout.includes(CANARY);
          });
        }
      });
      process.kill(readAgentPid(containerHost), 'SIGKILL');
    });

    it('are not reached by strangers at the address of a proxy', async () => {
      const curl = (url: string) => first.run(`curl -sS --max-time 5 ${url}`);
      for (const url of ['http://10.88.0.2:9443/', '-k https://10.88.0.2:9443/']) {
        const { code, stdout } = await curl(url);
        expect([code === 0, code === REFUSED, stdout]).toEqual([false, false, '']);
      }
      expect((await curl('-k https://10.88.0.3:9443/')).code).toBe(REFUSED);
    });

    it('answer while agents and coordinators are away', async () => {
      for (const machine of [open, closed]) process.kill(readAgentPid(machine), 'SIGKILL');
      await coordinator.kill('SIGKILL');
      for (let round = 0; round < 10; round += 1)
        expect([await call(closed, 'm2'), await call(open, 'm2')]).toEqual([
          expect.stringContaining(CANARY),
          expect.stringContaining(CANARY),
        ]);
    });

    it('answer every request while agents return with other settings and replace their proxies', async () => {
      const load = closed.start(`exec ${process.execPath} ${LOAD} ${addresses.get('m2')}`);
      await load.waitForLine((line) => line === 'began');
      coordinator = first.start('exec cloudless-coordinator --host 0.0.0.0', COORDINATOR_SETTINGS);
      await coordinator.waitForLog('coordinator ready');
      const agents = [
        startAgent(open, joinCommand, undefined, 'other', {
          CLOUDLESS_AGENT_RUNTIME: 'process',
          CLOUDLESS_AGENT_INGRESS_HTTPS: '10.88.0.2:443',
        }),
        startAgent(closed, joinCommand, 'none', 'other'),
      ];
      for (const agent of agents) {
        await agent.waitForLog('network proxy replaced');
        await agent.waitForLog('session established');
      }
      await load.kill('SIGTERM');
      const { count, failures } = JSON.parse(load.lines.at(-1) ?? '{}') as LoadResult;
      expect(failures).toEqual([]);
      expect(count).toBeGreaterThan(20);
    });

    it('are served over HTTPS with the newest certificate of a secret, also without a coordinator', async () => {
      const secret = (verb: string): string =>
        `secret ${verb} shop-tls --from-file tls.crt=${machines.directory}/shop.crt --from-file tls.key=${machines.directory}/shop.key`;
      /** Creates another certificate for the host of the route. */
      const createCertificate = async (): Promise<void> => {
        const files = `-keyout ${machines.directory}/shop.key -out ${machines.directory}/shop.crt`;
        const name = '-subj /CN=shop -addext subjectAltName=DNS:shop.test';
        await first.run(`openssl req -x509 -newkey rsa:2048 -nodes -days 2 ${name} ${files}`);
      };
      /** Returns the answer of the route, and the version of HTTP, to a client that trusts only the newest certificate. */
      const visit = async (): Promise<string> => {
        const trust = `--cacert ${machines.directory}/shop.crt --resolve shop.test:443:10.88.0.2`;
        const { stdout } = await closed.run(
          `curl -sS --max-time 5 -w ' HTTP/%{http_version}' ${trust} https://shop.test/`,
        );
        return stdout;
      };
      const untilServed = (): Promise<void> =>
        until(async () => (await visit()).endsWith(`${CANARY} HTTP/2`));
      await createCertificate();
      await ctl(`${secret('create')} --audience route/default.shop`);
      await ctl(
        'route create shop --host shop.test --service on-m2:http --tls-certificate-secret shop-tls',
      );
      await untilServed();
      await createCertificate();
      await ctl(`${secret('update')} --yes`);
      await untilServed();
      await coordinator.kill('SIGKILL');
      await open.run(`pkill -KILL -f '[n]etwork-proxy ${open.home}'`);
      await untilServed();
      coordinator = first.start('exec cloudless-coordinator --host 0.0.0.0', COORDINATOR_SETTINGS);
      await coordinator.waitForLog('coordinator ready');
    });

    it('are reached while and after a machine gets another address', async () => {
      const moved = '10.88.0.12';
      await open.run(`ip addr del 10.88.0.2/24 dev eth0 && ip addr add ${moved}/24 dev eth0`);
      await until(async () => (await call(closed, 'm2')).includes(CANARY));
      // Then directly again: each request uses the relay, or the new address.
      await until(async () => {
        expect(await call(closed, 'm2')).toContain(CANARY);
        const { stdout } = await closed.run('ss -Htn state established');
        return stdout.includes(`${moved}:9443`);
      });
    });

    it('are refused to a banned node, and its replicas are not reached', async () => {
      await until(async () => (await call(open, 'm3')).includes(CANARY));
      await ctl('node ban m3');
      await until(async () => !(await call(open, 'm3')).includes(CANARY));
      await until(async () => !(await call(closed, 'm2')).includes(CANARY));
      expect(await call(open, 'm2')).toContain(CANARY);
    });
  },
);
