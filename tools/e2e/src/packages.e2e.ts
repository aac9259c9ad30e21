import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repository, runToEnd } from './support/processes.js';

/** Libraries that are packed. */
const PACKED_LIBRARIES = ['base', 'scheduler', 'api'] as const;
let scratch = '';
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'cloudless-packages-'));
});
afterAll(() => rm(scratch, { recursive: true, force: true }));

/** A program that uses the scheduler, and the defaults and validation of the API library. */
const PROGRAM = `
import { create } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, checkSpec, withDefaults } from '@cloudless/api';
import { errorKindOf, toNodeId, toWorkloadId } from '@cloudless/base';
import { createCluster } from '@cloudless/scheduler';

const cluster = createCluster();
cluster.upsertNode({ id: toNodeId('edge-1'), zone: 'a', capacity: { cpuMillis: 4000, memoryBytes: 8e9 } });
cluster.upsertNode({ id: toNodeId('edge-2'), zone: 'b', capacity: { cpuMillis: 4000, memoryBytes: 8e9 } });
const request = { workloadId: toWorkloadId('w'), namespace: 'default', resources: { cpuMillis: 500, memoryBytes: 1e9 } };
console.log(cluster.place(request, 2).map(({ nodeId }) => nodeId).join(' '));
const spec = create(WorkloadSpecSchema, { command: ['serve'] });
console.log([withDefaults(spec).replicas, withDefaults(spec).resources.requests.cpuMillis].join(' '));
try {
  checkSpec(create(WorkloadSpecSchema));
} catch (reason) {
  console.log(errorKindOf(reason), reason.message);
}
`;

/** A program that uses the packages from CommonJS. Node.js can require ES modules since 20.19. */
const COMMONJS_PROGRAM = `
const { errorKindOf, toNodeId, toWorkloadId } = require('@cloudless/base');
const { createCluster } = require('@cloudless/scheduler');

const cluster = createCluster();
cluster.upsertNode({ id: toNodeId('edge-1'), zone: 'a', capacity: { cpuMillis: 4000, memoryBytes: 8e9 } });
const request = { workloadId: toWorkloadId('w'), namespace: 'default', resources: { cpuMillis: 500, memoryBytes: 1e9 } };
console.log('required:', cluster.place(request, 1)[0].nodeId, typeof errorKindOf);
`;

/** Files that a package may contain: compiled files, sources for the maps, documents; no specs. */
const PACKED_FILES =
  /^(dist\/.*\.(js|d\.ts)(\.map)?|src\/(?!.*\.spec\.ts$).*\.ts|package\.json|README\.md|LICENSE)$/;

async function writeJson(path: string, value: unknown): Promise<void> {
  await writeFile(join(scratch, path), JSON.stringify(value, null, 2));
}

describe('the libraries', () => {
  it('can be required from CommonJS, each with every entry of its exports', async () => {
    const names = await readdir(join(repository, 'libs'));
    execFileSync(
      join(repository, 'node_modules/.bin/tsc'),
      ['-b', ...names.map((name) => `libs/${name}/tsconfig.lib.json`)],
      { cwd: repository },
    );
    const manifests = await Promise.all(
      names.map((name) => readFile(join(repository, 'libs', name, 'package.json'), 'utf8')),
    );
    const entries = manifests
      .map((text) => JSON.parse(text) as { readonly name: string; readonly exports: object })
      .flatMap(({ name, exports }) => Object.keys(exports).map((entry) => name + entry.slice(1)))
      // suites and functions for Jest, whose modules exist only inside of Jest
      .filter((entry) => !/\/(conformance|describe-etcd)$/.test(entry));
    expect(entries.length).toBeGreaterThan(names.length);
    const program = `for (const entry of ${JSON.stringify(entries)}) {
      try { require(entry); } catch (reason) { console.log(entry + ': ' + reason.message); }
    }`;
    const run = await runToEnd(process.execPath, ['--no-warnings', '--eval', program], {
      cwd: repository,
    });
    expect(run).toMatchObject({ code: 0, stdout: '' });
  });
});

describe('npm packages of base, scheduler and api', () => {
  it('can be installed in another Nx workspace, imported and required', async () => {
    execFileSync(
      join(repository, 'node_modules/.bin/tsc'),
      ['-b', ...PACKED_LIBRARIES.map((name) => `libs/${name}/tsconfig.lib.json`)],
      {
        cwd: repository,
      },
    );
    const tarballs = PACKED_LIBRARIES.map((name) => {
      const [pack] = JSON.parse(
        execFileSync(
          'npm',
          ['pack', '--json', '--pack-destination', scratch, '-w', `@cloudless/${name}`],
          {
            cwd: repository,
            encoding: 'utf8',
          },
        ),
      ) as readonly {
        readonly filename: string;
        readonly files: readonly { readonly path: string }[];
      }[];
      const unexpectedFiles = pack!.files
        .map(({ path }) => path)
        .filter((path) => !PACKED_FILES.test(path));
      expect({ name, unexpectedFiles }).toEqual({ name, unexpectedFiles: [] });
      return join(scratch, pack!.filename);
    });
    await mkdir(join(scratch, 'apps/planner/src'), { recursive: true });
    await writeJson('package.json', {
      name: 'scratch',
      version: '0.0.0',
      private: true,
      workspaces: ['apps/*'],
    });
    await writeJson('nx.json', { analytics: false, neverConnectToCloud: true });
    await writeJson('apps/planner/package.json', {
      name: 'planner',
      version: '0.0.0',
      private: true,
      type: 'module',
      nx: {
        targets: {
          start: {
            executor: 'nx:run-commands',
            options: { command: 'node apps/planner/src/main.js' },
          },
        },
      },
    });
    await writeFile(join(scratch, 'apps/planner/src/main.js'), PROGRAM);
    await mkdir(join(scratch, 'apps/legacy/src'), { recursive: true });
    await writeJson('apps/legacy/package.json', {
      name: 'legacy',
      version: '0.0.0',
      private: true,
      type: 'commonjs',
      nx: {
        targets: {
          start: {
            executor: 'nx:run-commands',
            options: { command: 'node apps/legacy/src/main.cjs' },
          },
        },
      },
    });
    await writeFile(join(scratch, 'apps/legacy/src/main.cjs'), COMMONJS_PROGRAM);
    const { devDependencies } = JSON.parse(
      await readFile(join(repository, 'package.json'), 'utf8'),
    ) as {
      devDependencies: { nx: string };
    };
    const install = await runToEnd(
      'npm',
      [
        'install',
        '--ignore-scripts',
        '--prefer-offline',
        '--no-audit',
        '--no-fund',
        `nx@${devDependencies.nx}`,
        ...tarballs,
      ],
      { cwd: scratch },
    );
    expect(install).toMatchObject({ code: 0 });
    const run = await runToEnd(join(scratch, 'node_modules/.bin/nx'), ['run', 'planner:start'], {
      cwd: scratch,
      env: { NX_DAEMON: 'false' },
    });
    expect(run.code).toBe(0);
    expect(run.stdout).toContain(
      'edge-1 edge-2\n1 100\ninvalid spec: image or command is required',
    );
    const required = await runToEnd(
      join(scratch, 'node_modules/.bin/nx'),
      ['run', 'legacy:start'],
      { cwd: scratch, env: { NX_DAEMON: 'false' } },
    );
    expect(required.code).toBe(0);
    expect(required.stdout).toContain('required: edge-1 function');
  });
});
