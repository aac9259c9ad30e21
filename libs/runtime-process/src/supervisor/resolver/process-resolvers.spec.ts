import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { silentLog, type Clock, type ContainerId } from '@cloudless/base';
import type { ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { aScript } from '../../testing/container-calls.js';
import { findOwnMountsProblem } from '../../testing/own-mounts-problem.js';
import { waitUntil } from '../../testing/real-machine.js';
import { layout } from '../container/container-paths.js';
import { findShellTools } from '../process/shell-tools.js';
import { Supervisor } from '../supervisor.js';
import { findMountTools, type MountSupport } from './mount-tools.js';
import type { MountTools } from './own-mounts.js';
import { ProcessResolvers } from './process-resolvers.js';

/** The supervisor looks at its processes this often here, instead of every 3 s. */
const POLL_MS = 20;
const MACHINE_TEXT = 'nameserver 192.0.2.53\nsearch corp.example\n';
const network = { dnsServers: ['10.96.0.10'], dnsSearches: ['svc.test'], dnsOptions: ['ndots:5'] };
const OWN_LINES = ['nameserver 10.96.0.10', 'search svc.test corp.example', 'options ndots:5'];

const problem = findOwnMountsProblem();
const title = 'a process with DNS settings';
(problem === undefined ? describe : describe.skip)(
  problem === undefined ? title : `${title} (skipped: ${problem})`,
  () => {
    let home: string;
    let paths: { readonly file: string; readonly resolvedDirectory: string };
    const supervisors: Supervisor[] = [];

    beforeEach(() => {
      home = mkdtempSync(path.join(tmpdir(), 'cloudless-resolver-'));
      mkdirSync(path.join(home, 'etc'));
      paths = {
        file: path.join(home, 'etc/resolv.conf'),
        resolvedDirectory: path.join(home, 'run/systemd/resolve'),
      };
    });
    afterEach(async () => {
      for (const supervisor of supervisors.splice(0)) {
        await supervisor.stopAll(0);
        supervisor.close();
      }
      rmSync(home, { recursive: true, force: true });
    });

    /** Starts a supervisor on the same directory. */
    async function openSupervisor(tools: Partial<MountTools> = {}): Promise<Supervisor> {
      const directory = path.join(home, 'runtime');
      mkdirSync(directory, { recursive: true });
      const shellTools = await findShellTools();
      const shell = shellTools?.shell ?? '';
      const found = await findMountTools(directory, shell);
      const support: MountSupport =
        'tools' in found ? { tools: { ...found.tools, ...tools } } : found;
      const clock: Clock = {
        ...systemClock,
        setTimer: (delayMs, action) => systemClock.setTimer(Math.min(delayMs, POLL_MS), action),
      };
      const supervisor = new Supervisor({
        ...{ directory, clock, random: systemRandom, log: silentLog, tools: shellTools },
        resolvers: new ProcessResolvers({ support, shell, log: silentLog, paths }),
      });
      await supervisor.open();
      supervisor.configure({
        ...{ portRange: { from: 18_000, to: 18_999 }, address: '127.0.0.1' },
        ...{ path: '/usr/bin:/bin:/usr/sbin:/sbin', logFiles: 2, logFileBytes: 1024 },
      });
      supervisors.push(supervisor);
      return supervisor;
    }

    /** A machine whose resolv.conf is a plain file. */
    function writeMachineFile(): void {
      writeFileSync(paths.file, MACHINE_TEXT);
    }

    const start = (
      supervisor: Supervisor,
      script: string,
      overrides: Partial<ContainerRequest> = {},
    ): Promise<ContainerStatus> => supervisor.start(aScript(script, { network, ...overrides }));
    /** Waits for a file with a line, and returns its lines. */
    async function readLines(name: string): Promise<readonly string[]> {
      const file = path.join(home, name);
      await waitUntil(() => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n'));
      return readFileSync(file, 'utf8').trim().split('\n');
    }
    async function exec(supervisor: Supervisor, id: ContainerId, script: string): Promise<string> {
      let text = '';
      const message = { type: 'exec', id: 1, containerId: id, hasInput: false } as const;
      const command = ['/bin/sh', '-c', script];
      let release = (): void => undefined;
      await new Promise<void>((resolve, reject) => {
        supervisor
          .exec(
            { ...message, command },
            {
              onOutput: (_stream, chunk) => (text += Buffer.from(chunk).toString()),
              onInputDrained: () => undefined,
              onEnd: () => resolve(),
            },
          )
          .then((started) => (release = started.release), reject);
      });
      release();
      return text.trim();
    }
    const ownLines = (text: string): readonly string[] =>
      text.split('\n').filter((line) => !line.startsWith('#'));
    async function waitForEnd(supervisor: Supervisor, id: ContainerId): Promise<ContainerStatus> {
      await waitUntil(() => supervisor.requireContainer(id).status.phase === 'exited');
      return supervisor.requireContainer(id).status;
    }
    const aTool = (name: string, script: string): string => {
      const file = path.join(home, name);
      writeFileSync(file, `#!/bin/sh\n${script}\n`, { mode: 0o700 });
      return file;
    };

    it.each([
      { name: 'a file', prepare: () => writeMachineFile() },
      {
        name: 'a link to a file',
        prepare: () => {
          writeFileSync(path.join(home, 'etc/real'), MACHINE_TEXT);
          symlinkSync('real', paths.file);
        },
      },
      {
        name: 'a link to a file of systemd-resolved',
        prepare: () => {
          mkdirSync(paths.resolvedDirectory, { recursive: true });
          writeFileSync(path.join(paths.resolvedDirectory, 'stub-resolv.conf'), MACHINE_TEXT);
          symlinkSync('../run/systemd/resolve/stub-resolv.conf', paths.file);
        },
      },
      {
        name: 'a file beside systemd-resolved',
        prepare: () => {
          mkdirSync(paths.resolvedDirectory, { recursive: true });
          writeMachineFile();
        },
      },
    ])('reads its own resolv.conf where that of the machine is $name', async ({ prepare }) => {
      prepare();
      if (existsSync(paths.resolvedDirectory))
        writeFileSync(path.join(paths.resolvedDirectory, 'io.systemd.Resolve'), '');
      const supervisor = await openSupervisor();
      const show = `cat ${paths.file}; ls ${paths.resolvedDirectory} 2>/dev/null | grep systemd`;
      const { containerId, problems } = await start(
        supervisor,
        `(${show}) >${home}/draft; mv ${home}/draft ${home}/seen; exec sleep 3600`,
      );
      expect(problems).toBeUndefined();
      expect(ownLines((await readLines('seen')).join('\n'))).toEqual(OWN_LINES);
      expect(ownLines(await exec(supervisor, containerId, show))).toEqual(OWN_LINES);
      expect(readFileSync(paths.file, 'utf8')).toBe(MACHINE_TEXT);
    });

    it('keeps its process id, session, exit code and end by a signal', async () => {
      writeMachineFile();
      const supervisor = await openSupervisor();
      const first = await start(
        supervisor,
        `read -r pid name state parent group session rest </proc/self/stat
         echo "$$ $group $session" >${home}/ids; exit 7`,
      );
      expect(await readLines('ids')).toEqual([[first.pid, first.pid, first.pid].join(' ')]);
      expect(await waitForEnd(supervisor, first.containerId)).toMatchObject({ exitCode: 7 });
      const second = await start(supervisor, 'kill -USR1 $$');
      const ended = { exitCode: 138, reason: 'killed by SIGUSR1' };
      expect(await waitForEnd(supervisor, second.containerId)).toMatchObject(ended);
    });

    it('gives commands the directory, the variables and the mounts of the main process', async () => {
      writeMachineFile();
      const supervisor = await openSupervisor();
      const work = path.join(home, 'work');
      mkdirSync(work);
      const { containerId } = await start(
        supervisor,
        `mkdir own && mount -t tmpfs none own && touch own/file && echo x >${home}/mounted; exec sleep 3600`,
        { workingDir: work, env: { NAME: 'value' }, secretEnv: { TOKEN: 'hush' } },
      );
      await readLines('mounted');
      const script = 'echo "$(pwd) $NAME $TOKEN $(ls own)"';
      expect(await exec(supervisor, containerId, script)).toBe(`${work} value hush file`);
      expect(existsSync(path.join(work, 'own/file'))).toBe(false);
    });

    it('sees later mounts of the machine where the machine shares its mounts', async () => {
      writeMachineFile();
      const shared = path.join(home, 'shared');
      mkdirSync(shared);
      execFileSync('mount', ['-t', 'tmpfs', 'none', shared]);
      try {
        execFileSync('mount', ['--make-shared', shared]);
        mkdirSync(path.join(shared, 'later'));
        const supervisor = await openSupervisor();
        const { containerId } = await start(
          supervisor,
          `until [ -e ${shared}/later/file ]; do sleep 0.02; done; exit 5`,
        );
        execFileSync('mount', ['-t', 'tmpfs', 'none', path.join(shared, 'later')]);
        writeFileSync(path.join(shared, 'later/file'), '');
        expect(await waitForEnd(supervisor, containerId)).toMatchObject({ exitCode: 5 });
      } finally {
        execFileSync('umount', ['--recursive', shared]);
      }
    });

    it('reads its own resolv.conf again after the machine has replaced its file', async () => {
      writeMachineFile();
      const supervisor = await openSupervisor();
      const { containerId } = await start(supervisor, 'exec sleep 3600');
      const replace = (text: string): void => {
        writeFileSync(`${paths.file}.new`, text);
        renameSync(`${paths.file}.new`, paths.file);
      };
      const waitForOwn = async (of: Supervisor): Promise<void> => {
        for (;;) {
          const text = await exec(of, containerId, `cat ${paths.file}`);
          if (text.includes('10.96.0.10')) return;
        }
      };
      replace('nameserver 192.0.2.1\n');
      await waitForOwn(supervisor);
      expect(readFileSync(paths.file, 'utf8')).toBe('nameserver 192.0.2.1\n');
      // Also when no supervisor runs meanwhile.
      supervisors.pop()?.close();
      replace('nameserver 192.0.2.2\n');
      await waitForOwn(await openSupervisor());
    });

    it('leaves no file when its container is removed', async () => {
      writeMachineFile();
      const supervisor = await openSupervisor();
      const { containerId } = await start(supervisor, 'exec sleep 3600');
      const folder = layout.container(path.join(home, 'runtime'), containerId);
      expect(existsSync(layout.resolver(folder))).toBe(true);
      await supervisor.requireContainer(containerId).stop(0);
      await supervisor.remove(containerId);
      expect(existsSync(folder)).toBe(false);
    });

    describe('that cannot have a resolv.conf of its own', () => {
      /** Starts a process, and expects that it runs with the mounts of the machine. */
      async function expectPlainStart(supervisor: Supervisor, reason: string): Promise<void> {
        const status = await start(supervisor, 'exec sleep 3600');
        const { containerId, pid = 0 } = status;
        expect(status.problems).toEqual([
          `names of services do not resolve in this process: ${reason}`,
        ]);
        expect(readlinkSync(`/proc/${pid}/ns/mnt`)).toBe(readlinkSync('/proc/self/ns/mnt'));
        expect(await exec(supervisor, containerId, 'echo $CLOUDLESS_CONTAINER_ID')).toBe(
          containerId,
        );
        expect(supervisor.list()).toEqual([status]);
        const stopped = await supervisor.requireContainer(containerId).stop(0);
        expect(stopped).toMatchObject({ exitCode: 137 });
      }

      it.each([
        { name: 'has no resolv.conf', prepare: () => undefined },
        { name: 'has a link to nothing', prepare: () => symlinkSync('missing', paths.file) },
        { name: 'has a link to itself', prepare: () => symlinkSync('resolv.conf', paths.file) },
      ])('starts all the same where the machine $name', async ({ prepare }) => {
        prepare();
        await expectPlainStart(
          await openSupervisor(),
          `${paths.file} does not exist on this machine: create it`,
        );
      });

      it('starts all the same when the kernel refuses another namespace', async () => {
        writeMachineFile();
        const text = 'unshare: unshare failed: No space left on device';
        const unshare = aTool('unshare', `echo '${text}' >&2; exit 1`);
        await expectPlainStart(await openSupervisor({ unshare }), text);
      });

      it('starts all the same when the kernel refuses the mount', async () => {
        writeMachineFile();
        const text = 'mount: permission denied.';
        const mount = aTool('mount', `echo '${text}' >&2; exit 32`);
        await expectPlainStart(await openSupervisor({ mount }), text);
      });
    });
  },
);
