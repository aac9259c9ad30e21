import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Reload_Mode as Mode, WorkloadSpecSchema } from '../gen.js';
import { withDefaults } from './defaults.js';
import { validateFiles } from './files-rules.js';

type Spec = MessageInitShape<typeof WorkloadSpecSchema>;

const validate = (fields: Spec): string[] =>
  [...validateFiles(create(WorkloadSpecSchema, { image: 'web', ...fields }))].map(
    ({ field, message }) => `${field}: ${message}`,
  );

describe('references to secrets and configs', () => {
  it.each<{ name: string; spec: Spec }>([
    { name: 'files in the default directory', spec: { secrets: [{ name: 'db' }] } },
    {
      name: 'the same name for a secret and a config',
      spec: { secrets: [{ name: 'db' }], configs: [{ name: 'db' }] },
    },
    {
      name: 'a process with files',
      spec: { image: '', command: ['a'], secrets: [{ name: 'db' }] },
    },
    { name: 'one variable', spec: { secrets: [{ name: 'db', env: 'DB' }] } },
    {
      name: 'a signal',
      spec: { configs: [{ name: 'a', reload: { mode: Mode.SIGNAL, signal: 'SIGUSR1' } }] },
    },
    {
      name: 'a directory inside a volume',
      spec: {
        volumes: [{ name: 'v', mountPath: '/data' }],
        secrets: [{ name: 'db', mountPath: '/data/db' }],
      },
    },
  ])('accept $name', ({ spec }) => {
    expect(validate(spec)).toEqual([]);
  });

  it.each<{ spec: Spec; message: string }>([
    { spec: { secrets: [{}] }, message: 'spec.secrets[0].name: is required' },
    { spec: { configs: [{ name: 'A' }] }, message: 'spec.configs[0].name: is required' },
    {
      spec: { secrets: [{ name: 'a' }, { name: 'a', env: 'X' }] },
      message: 'spec.secrets[1].name: "a" is used twice',
    },
    {
      spec: { secrets: [{ name: 'a', env: 'X', keys: [{ key: 'k' }] }] },
      message: 'spec.secrets[0].env: cannot be combined with keys',
    },
    {
      spec: { secrets: [{ name: 'a', env: 'X', mountPath: '/x' }] },
      message: 'spec.secrets[0].mount_path: cannot be combined with env',
    },
    {
      spec: { secrets: [{ name: 'a', mountPath: 'x' }] },
      message: 'spec.secrets[0].mount_path: must be an absolute path',
    },
    {
      spec: { secrets: [{ name: 'a', mountPath: '/' }] },
      message: 'spec.secrets[0].mount_path: must not be the root directory',
    },
    {
      spec: { image: '', secrets: [{ name: 'a', mountPath: '/x' }] },
      message: 'spec.secrets[0].mount_path: a process has no mounts',
    },
    {
      spec: {
        secrets: [{ name: 'a', mountPath: '/x' }],
        configs: [{ name: 'b', mountPath: '/x' }],
      },
      message: 'spec.configs[0].mount_path: /x overlaps /x of spec.secrets[0]',
    },
    {
      spec: { secrets: [{ name: 'a', mountPath: '/run/configs' }], configs: [{ name: 'b' }] },
      message:
        'spec.configs[0].mount_path: /run/configs/b overlaps /run/configs of spec.secrets[0]',
    },
    {
      spec: { volumes: [{ mountPath: '/x' }], configs: [{ name: 'b', mountPath: '/x' }] },
      message: 'spec.configs[0].mount_path: /x overlaps /x of spec.volumes[0]',
    },
    {
      spec: { env: { X: '1' }, secrets: [{ name: 'a', env: 'X' }] },
      message: 'spec.secrets[0].env: variable "X" is set by spec.env too',
    },
    {
      spec: {
        secrets: [{ name: 'a', env: 'X' }],
        configs: [{ name: 'a', keys: [{ key: 'k', env: 'X' }] }],
      },
      message: 'spec.configs[0].keys[0].env: variable "X" is set by spec.secrets[0].env too',
    },
    {
      spec: { secrets: [{ name: 'a', env: 'CLOUDLESS_SECRETS_DIR' }] },
      message: 'variable "CLOUDLESS_SECRETS_DIR" is set by Cloudless too',
    },
    {
      spec: { secrets: [{ name: 'a', keys: [{ key: 'k', env: 'X', file: 'f' }] }] },
      message: 'spec.secrets[0].keys[0].file: cannot be combined with env',
    },
    {
      spec: { secrets: [{ name: 'a', keys: [{ key: 'k' }, { key: 'l', file: 'k' }] }] },
      message: 'spec.secrets[0].keys[1].file: file "k" is written twice',
    },
    {
      spec: { secrets: [{ name: 'a', mountPath: '/x', keys: [{ key: 'k', env: 'X' }] }] },
      message: 'spec.secrets[0].mount_path: has no effect',
    },
    {
      spec: { secrets: [{ name: 'a', reload: { signal: 'SIGHUP' } }] },
      message: 'spec.secrets[0].reload.signal: needs the mode SIGNAL',
    },
    {
      spec: { secrets: [{ name: 'a', reload: { mode: Mode.SIGNAL, signal: 'SIGKILL' } }] },
      message: 'spec.secrets[0].reload.signal: must be one of SIGHUP',
    },
    {
      spec: { secrets: [{ name: 'a', env: 'X', reload: { mode: Mode.NONE } }] },
      message: 'spec.secrets[0].reload.mode: must be RESTART',
    },
    {
      spec: { imagePull: { secret: 'A b' } },
      message: 'spec.image_pull.secret: must be the name of a secret',
    },
  ])('refuse $message', ({ spec, message }) => {
    expect(validate(spec)).toEqual([expect.stringContaining(message) as string]);
  });

  it('have directories, file names and a signal as defaults', () => {
    const { secrets, configs } = withDefaults(
      create(WorkloadSpecSchema, {
        image: 'web',
        secrets: [{ name: 'db', keys: [{ key: 'password' }], reload: { mode: Mode.SIGNAL } }],
        configs: [{ name: 'web' }, { name: 'one', env: 'ONE' }],
      }),
    );
    expect(secrets).toMatchObject([
      {
        mountPath: '/run/secrets/db',
        keys: [{ key: 'password', file: 'password' }],
        reload: { signal: 'SIGHUP' },
      },
    ]);
    expect(configs).toMatchObject([{ mountPath: '/run/configs/web' }, { mountPath: '' }]);
  });
});
