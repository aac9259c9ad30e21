// Which modules each command of cloudlessctl reads before it runs. Their number decides the start
// time, and unlike a time it is the same on every machine.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { build } from 'esbuild';
import { cliBundle } from '../build.mjs';

/** Modules that a command without a coordinator must not read. */
const HEAVY = /node_modules\/(@bufbuild|@connectrpc|yaml|lmdb|log-update)\/|libs\/api\//;

/** Modules of the HTTP/2 client, which is read with the first call. */
const HTTP_CLIENT = /node_modules\/@connectrpc\/connect-node\//;

let outputs;
before(async () => {
  const { metafile } = await build({ ...cliBundle, write: false, metafile: true });
  outputs = metafile.outputs;
});

/** Modules for clusters with TLS: identities, tokens and the TLS client. */
const SECURE = /libs\/(identity|rpc-node)\/|apps\/cloudlessctl\/src\/identity\//;

/** Packages that issue certificates: much code, which only the coordinator needs. */
const X509 = /node_modules\/(@peculiar|reflect-metadata|asn1js|pvtsutils|tsyringe)\//;

/** @returns the source files that are read when a bundle file is imported */
function listInputs(file, seen = new Set()) {
  if (seen.has(file)) return [];
  seen.add(file);
  const { inputs, imports } = outputs[file];
  const next = imports.filter(({ kind, external }) => kind === 'import-statement' && !external);
  return [...Object.keys(inputs), ...next.flatMap(({ path }) => listInputs(path, seen))];
}

/** @returns the bundle file whose entry is a source file of cloudlessctl */
function findOutput(source) {
  const entry = `apps/cloudlessctl/src/${source}`;
  const found = Object.keys(outputs).find((file) => outputs[file].entryPoint === entry);
  assert.ok(found, `${entry} is no entry of a bundle file; is it still imported with import()?`);
  return found;
}

describe('bundle of cloudlessctl', () => {
  for (const [command, source] of [
    ['--help', 'main.ts'],
    ['version --client', 'commands/general/version-command.ts'],
    ['help', 'commands/general/help-command.ts'],
    ['completion', 'commands/general/completion-command.ts'],
    ['context', 'commands/context/context-commands.ts'],
  ]) {
    it(`${command} reads neither the API nor YAML nor the data store`, () => {
      const inputs = [...listInputs(findOutput('main.ts')), ...listInputs(findOutput(source))];
      assert.deepEqual(
        inputs.filter((input) => HEAVY.test(input)),
        [],
      );
    });
  }

  it('no command reads the HTTP/2 client before its first call', () => {
    // Both are imported with the first call, the second for https.
    const clients = [findOutput('io/http2-connection.ts'), findOutput('io/tls-connection.ts')];
    for (const client of clients)
      assert.ok(listInputs(client).some((input) => HTTP_CLIENT.test(input)));
    // Commands that call etcd itself, imported on use.
    const ofEtcd = [
      'libs/state-store-etcd/src/index.ts',
      'apps/cloudlessctl/src/commands/admin/migrate.ts',
    ];
    for (const file of Object.keys(outputs)) {
      const { entryPoint } = outputs[file];
      if (clients.includes(file) || entryPoint === undefined || ofEtcd.includes(entryPoint))
        continue;
      assert.deepEqual(
        listInputs(file).filter((input) => HTTP_CLIENT.test(input)),
        [],
        file,
      );
    }
  });

  it('no file reads the packages with which the coordinator issues certificates', () => {
    for (const [file, { inputs }] of Object.entries(outputs))
      assert.deepEqual(
        Object.keys(inputs).filter((input) => X509.test(input)),
        [],
        file,
      );
  });

  it('only login and a renewal read the code that creates keys', () => {
    const readers = Object.keys(outputs)
      .filter((file) => outputs[file].entryPoint !== undefined)
      .filter((file) => listInputs(file).some((input) => input.endsWith('/x509/csr.ts')))
      .map((file) => outputs[file].entryPoint);
    assert.deepEqual(readers.sort(), [
      'apps/cloudlessctl/src/commands/login/login-command.ts',
      'apps/cloudlessctl/src/identity/renew-identity.ts',
    ]);
  });

  it('a call over plaintext reads no code for identities and TLS', () => {
    const plaintext = [
      'main.ts',
      'commands/general/general-commands.ts',
      'call/cli-session.ts',
      'io/http2-connection.ts',
    ].flatMap((source) => listInputs(findOutput(source)));
    assert.deepEqual(
      plaintext.filter((input) => SECURE.test(input) || X509.test(input)),
      [],
    );
  });

  it('only the file of simulations of a snapshot contains CEL, which the controllers use', () => {
    const validator = /node_modules\/@bufbuild\/(cel|re2)\//;
    for (const [file, { inputs }] of Object.entries(outputs)) {
      if (file.includes('/simulate-snapshot-')) continue;
      assert.deepEqual(
        Object.keys(inputs).filter((input) => validator.test(input)),
        [],
        file,
      );
    }
  });
});
