import { manifestSchema } from '@cloudless/api/manifest-schema';
import { parseManifest } from '../../manifest/parse-manifest.js';
import { runCli } from '../../testing/run-cli.js';

describe('init', () => {
  it.each([
    [['init'], 'web.yaml', 'web'],
    [['init', 'conf/shop.yml'], 'conf/shop.yml', 'shop'],
    [['init', 'a.yaml', '--image', 'registry:5000/Team/a@sha256:00', '--schema'], 'a.yaml', 'a'],
    [['init', 'a.yaml', '--name', 'b', '--', 'node', '-e', 'a: "b" # c', ''], 'a.yaml', 'b'],
    [['init', 'no.yaml', '--', 'yes'], 'no.yaml', 'no'],
  ])('writes a valid manifest for %j', async (argv, file, name) => {
    const { exitCode, files, stderr } = await runCli(argv);
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
    const text = files[file] ?? '';
    const { workloads, problems } = parseManifest(file, new TextEncoder().encode(text), 'default');
    expect(problems).toEqual([]);
    expect(workloads).toMatchObject([{ name, spec: { replicas: 2 } }]);
  });

  it('keeps the words of the command', async () => {
    const { files } = await runCli(['init', 'a.yaml', '--', 'node', '-e', 'a: "b" # c', '']);
    const { workloads } = parseManifest(
      'a.yaml',
      new TextEncoder().encode(files['a.yaml']),
      'default',
    );
    expect(workloads[0]?.spec.command).toEqual(['node', '-e', 'a: "b" # c', '']);
  });

  it('writes the schema beside the manifest with --schema', async () => {
    const { files, stderr } = await runCli(['init', 'conf/shop.yaml', '--schema']);
    expect(files['conf/shop.yaml']).toMatch(
      /^# yaml-language-server: \$schema=\.\/cloudless\.schema\.json\n/,
    );
    expect(JSON.parse(files['conf/cloudless.schema.json'] ?? '')).toEqual(manifestSchema);
    expect(stderr).toBe(
      'conf/shop.yaml written\nconf/cloudless.schema.json written\nnext: cloudlessctl apply -f conf/shop.yaml\n',
    );
  });

  it('prints the manifest with -', async () => {
    const { stdout, files } = await runCli(['init', '-']);
    expect(stdout).toContain('image: nginx:alpine');
    expect(files).toEqual({});
  });

  it('replaces an existing file only with --force', async () => {
    const files = { 'web.yaml': 'mine' };
    expect(await runCli(['init'], { files })).toMatchObject({
      exitCode: 2,
      stderr: 'cloudlessctl: web.yaml exists already; choose another file, or use --force\n',
      files,
    });
    expect((await runCli(['init', '--force'], { files })).files['web.yaml']).toContain('nginx');
  });

  it.each([
    [['init', 'My_App.yaml'], 'the name of the file gives the name "My_App"'],
    [['init', '--name', 'A'], '--name "A": expected up to 63 lower-case letters'],
    [['init', '-', '--schema'], '--schema needs a file; use: cloudlessctl schema'],
    [['init', 'a.yaml', 'node'], 'put the command after --'],
  ])('refuses %j', async (argv, message) => {
    const { exitCode, stderr, files } = await runCli(argv);
    expect({ exitCode, files }).toEqual({ exitCode: 2, files: {} });
    expect(stderr).toContain(message);
  });
});

describe('schema', () => {
  it('prints the JSON Schema', async () => {
    expect(JSON.parse((await runCli(['schema'])).stdout)).toEqual(manifestSchema);
  });
});

describe('convert', () => {
  const files = {
    'compose.yaml': 'services: {web: {image: "nginx:$TAG", build: .}}\n',
    'empty.yaml': 'a: 1\n',
    'bad.yaml': '[',
  };

  it('prints the manifest, and the notes to standard error', async () => {
    expect(
      await runCli(['convert', '-f', 'compose.yaml'], { files, env: { TAG: '1' } }),
    ).toMatchObject({
      exitCode: 0,
      stdout: 'kind: Workload\nname: web\nspec:\n  image: nginx:1\n',
      stderr:
        'compose.yaml:1:39: services.web.build: has no equivalent: build and push the image first, then set image\n',
    });
  });

  it('exits with 2 for notes with --strict', async () => {
    const { exitCode, stdout } = await runCli(['convert', '--strict', '-f', 'compose.yaml'], {
      files,
    });
    expect({ exitCode, stdout }).toEqual({
      exitCode: 2,
      stdout: expect.stringContaining('image: "nginx:"'),
    });
  });

  it.each([
    ['bad.yaml', 'bad.yaml:1:2: '],
    ['empty.yaml', 'cloudlessctl: found no object to translate'],
    ['missing.yaml', 'missing.yaml: no such file or directory'],
  ])('exits with 2 for %s', async (file, message) => {
    const { exitCode, stdout, stderr } = await runCli(['convert', '-f', file], { files });
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr).toContain(message);
  });
});

describe('explain with a manifest field', () => {
  it('prints the field and the fields below, without a coordinator', async () => {
    const { stdout, servers } = await runCli(['explain', 'spec.rollout.steps']);
    expect(stdout).toMatch(/^spec\.rollout\.steps {3}list of maps, at most 32\n/);
    expect(stdout).toContain(
      '  wait   duration such as 500ms, 2s or 1h30m\n      Time that these replicas must have been ready before the next step begins, up to 30 days.',
    );
    expect(servers).toEqual([]);
  });

  it('lists the fields at every level with --recursive', async () => {
    const { stdout } = await runCli(['explain', 'spec', '--recursive']);
    expect(stdout).toContain('  rollout   map\n    strategy   one of ROLLING_UPDATE, RECREATE');
  });

  it.each([
    [['explain', 'spec.rolout'], 'spec has no field "rolout"; did you mean rollout?'],
    [['explain', 'spec', '-o', 'json'], '"cloudlessctl schema" prints the JSON Schema'],
    [['explain', 'web', '--recursive'], '--recursive applies to manifest fields'],
  ])('refuses %j', async (argv, message) => {
    const { exitCode, stderr } = await runCli(argv);
    expect(exitCode).toBe(2);
    expect(stderr).toContain(message);
  });

  it('explains a workload called spec when its namespace is given', async () => {
    const { stdout } = await runCli(['explain', 'default/spec'], {
      coordinator: { explainWorkload: ({ name }) => ({ name, summary: 'fine' }) },
    });
    expect(stdout).toContain('fine');
  });
});
