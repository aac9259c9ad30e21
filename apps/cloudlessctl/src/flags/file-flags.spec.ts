import { toJson } from '@bufbuild/protobuf';
import { WorkloadSpecSchema, type CreateWorkloadRequest } from '@cloudless/api';
import { aWorkload, runCli } from '../testing/run-cli.js';

/** Returns the spec that `workload create` sends with these flags. */
async function createWith(flags: readonly string[]): Promise<unknown> {
  const requests: CreateWorkloadRequest[] = [];
  const coordinator = {
    createWorkload: (request: CreateWorkloadRequest) => (requests.push(request), aWorkload()),
  };
  const argv = ['workload', 'create', 'web', '--image', 'a', ...flags];
  expect(await runCli(argv, { coordinator })).toMatchObject({ exitCode: 0 });
  const [request] = requests;
  return request?.spec && toJson(WorkloadSpecSchema, request.spec);
}

describe('flags of secrets and configs', () => {
  it.each<[readonly string[], object]>([
    [['--secret', 'db'], { secrets: [{ name: 'db' }] }],
    [['--secret', 'db:/etc/db'], { secrets: [{ name: 'db', mountPath: '/etc/db' }] }],
    [['--secret', 'db:env=PASSWORD'], { secrets: [{ name: 'db', env: 'PASSWORD' }] }],
    [
      ['--secret', 'db:reload=signal:mode=0440:version=3:audience=team/db'],
      {
        secrets: [
          {
            name: 'db',
            mode: 288,
            version: 3,
            audience: 'team/db',
            reload: { mode: 'SIGNAL' },
          },
        ],
      },
    ],
    [
      ['--secret', 'db:key=user,env=DB_USER:key=password,file=pw', '--secret', 'tls.web:mode=444'],
      {
        secrets: [
          {
            name: 'db',
            keys: [
              { key: 'user', env: 'DB_USER' },
              { key: 'password', file: 'pw' },
            ],
          },
          { name: 'tls.web', mode: 292 },
        ],
      },
    ],
    [
      ['--config', 'nginx:/etc/nginx:reload=SIGHUP', '--config', 'app:reload=none'],
      {
        configs: [
          { name: 'nginx', mountPath: '/etc/nginx', reload: { mode: 'SIGNAL', signal: 'SIGHUP' } },
          { name: 'app', reload: { mode: 'NONE' } },
        ],
      },
    ],
    [['--image-pull-secret', 'registry'], { imagePull: { secret: 'registry' } }],
  ])('%j', async (flags, expected) => {
    expect(await createWith(flags)).toMatchObject(expected);
  });

  it.each([
    ['--secret', 'Db', '--secret: "Db" is not the name of a secret: expected lower-case letters'],
    ['--secret', 'db:etc', '--secret: unknown option "etc" of "db:etc"; expected /PATH, env='],
    ['--config', 'db:audience=a', '--config: unknown option "audience=a" of "db:audience=a"'],
    ['--secret', 'db:/a:/b', '--secret: "db:/a:/b" has two paths'],
    ['--secret', 'db:env=A:env=B', '--secret: "db:env=A:env=B" has two options env='],
    ['--secret', 'db:mode=0600', '--secret: mode= expects 0400, 0440 or 0444, got "0600"'],
    ['--secret', 'db:mode=0404', '--secret: mode= expects 0400, 0440 or 0444, got "0404"'],
    ['--secret', 'db:version=new', '--secret: version= expects the number of a version'],
    ['--secret', 'db:reload=hup', '--secret: reload= expects restart, none, signal or the name'],
    ['--secret', 'db:key=a,x=b', '--secret: key= expects KEY, KEY,file=NAME or KEY,env=VARIABLE'],
  ])('refuses %s %s', async (flag, value, message) => {
    const result = await runCli(['workload', 'create', 'web', '--image', 'a', flag, value]);
    expect(result.exitCode).toBe(2);
    expect(result.stderr).toContain(message);
  });

  it('removes all secrets with none', async () => {
    const requests: unknown[] = [];
    const coordinator = {
      updateWorkload: (request: { readonly updateMask?: unknown; readonly spec?: unknown }) => (
        requests.push(request),
        aWorkload()
      ),
    };
    const argv = ['workload', 'update', 'web', '--secret', 'none'];
    expect(await runCli(argv, { coordinator })).toMatchObject({ exitCode: 0 });
    expect(requests).toMatchObject([{ updateMask: { paths: ['secrets'] }, spec: { secrets: [] } }]);
  });
});
