// Which packages are in the bundles of the processes that the agent starts. The amount of code
// decides how long a node is without a network proxy, and unlike a time is equal on every machine.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { build } from 'esbuild';
import { agentBundle } from '../build.mjs';

/** Packages and code for the agent itself. */
const OF_AGENT =
  /node_modules\/(commander|yaml|winston|@bufbuild\/cel|@opentelemetry\/(?!api\/)[^/]+)\/|libs\/runtime-cri\//;

/** Packages and code for which the start of a proxy must not wait. */
const OF_FULL_AGENT =
  /node_modules\/(@connectrpc|@bufbuild|@peculiar|prom-client|winston|@opentelemetry)\/|libs\/(rpc-node|runtime-cri|runtime-process|mesh)\//;

/** Definitions of the API that no proxy needs. Each is decoded at the start of a process. */
const UNUSED_API = /libs\/api\/src\/gen\/cloudless\/api\/(coordinator|admin|agent)_/;

let outputs;
before(async () => {
  const { metafile } = await build({ ...agentBundle, write: false, metafile: true });
  outputs = metafile.outputs;
});

/** Files with fewer bytes in a bundle do not count: only an empty wrapper is left of them. */
const EMPTY_BYTES = 300;

/** @returns the source files whose code is in a bundle of the agent */
function listInputs(name) {
  const { inputs } = outputs[`${agentBundle.outdir}/${name}.mjs`];
  return Object.keys(inputs).filter((input) => inputs[input].bytesInOutput > EMPTY_BYTES);
}

describe('bundles of the agent', () => {
  it('the entry has the code of no command', () => {
    assert.deepEqual(listInputs('main'), ['apps/agent/src/main.ts']);
  });

  for (const { name, without, unwanted } of [
    { name: 'supervisor', without: 'packages', unwanted: /node_modules\// },
    {
      name: 'agent',
      without: 'the code that the agent loads after the start of its proxy',
      unwanted: OF_FULL_AGENT,
    },
    { name: 'network-proxy', without: 'the code of the agent', unwanted: OF_AGENT },
    { name: 'network-proxy', without: 'definitions of other services', unwanted: UNUSED_API },
  ])
    it(`the bundle of ${name} is without ${without}`, () => {
      assert.deepEqual(
        listInputs(`${name}-command`).filter((input) => unwanted.test(input)),
        [],
      );
    });
});
