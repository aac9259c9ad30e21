// Which packages are in the bundles of the processes that the agent starts. The amount of code
// decides how long a node is without a network proxy, and unlike a time is equal on every machine.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { toJson } from '@bufbuild/protobuf';
import { DescriptorProtoSchema, ServiceDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { buildAgent, buildNetworkProxy, bundleWholeNetworkProxy } from '../build.mjs';
import { collectTypes, listUsed, readDefinitions } from '../bundle/prune-definitions.mjs';

/** Packages and code for the agent itself. */
const OF_AGENT =
  /node_modules\/(commander|yaml|winston|@bufbuild\/cel|@opentelemetry\/(?!api\/)[^/]+)\/|libs\/runtime-cri\//;

/** Packages and code for which the start of a proxy must not wait. */
const OF_FULL_AGENT =
  /node_modules\/(@connectrpc|@bufbuild|@peculiar|prom-client|winston|@opentelemetry)\/|libs\/(rpc-node|runtime-cri|runtime-process|mesh)\//;

/** Definitions of the API that no proxy needs. Each is decoded at the start of a process. */
const UNUSED_API =
  /libs\/api\/src\/gen\/cloudless\/api\/(coordinator_|admin_|agent_|identity_|node_pb|stats_|logs_|event_)/;

let outputs;
before(async () => {
  const { metafile } = await buildAgent({ write: false });
  outputs = metafile.outputs;
});

/** Files with fewer bytes in a bundle do not count: only an empty wrapper is left of them. */
const EMPTY_BYTES = 300;

/** @returns the source files whose code is in a bundle of the agent */
function listInputs(name) {
  const { inputs } = outputs[`dist/apps/agent/${name}.mjs`];
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

describe('the API definitions in the bundle of network-proxy', () => {
  let whole;
  let pruned;
  before(async () => {
    whole = await bundleWholeNetworkProxy();
    const { outputFiles } = await buildNetworkProxy({ sourcemap: false, write: false });
    pruned = outputFiles[0].text;
  });

  it('keep every type that the code uses as the API defines the type, without validation rules', () => {
    const [ofWhole, ofPruned] = [whole, pruned].map((code) => collectTypes(readDefinitions(code)));
    const used = listUsed(whole);
    const names = ['NetworkUpdate', 'NetworkEndpointEntry', 'TrafficReport', 'NodeNetworkService'];
    for (const name of names) assert.ok(used.has(`.cloudless.api.${name}`), name);
    for (const name of used)
      assert.deepEqual(describeType(ofPruned, name), describeType(ofWhole, name));
  });

  it('keep no fields of a message that the code does not use', () => {
    const types = collectTypes(readDefinitions(pruned));
    assert.deepEqual(types.get('.cloudless.api.WorkloadSpec').type.field, []);
    assert.equal(types.has('.buf.validate.FieldRules'), false);
  });
});

/** @returns fields or methods of a type in JSON, which has no rules; other types as their values */
function describeType(types, name) {
  const { type } = types.get(name) ?? assert.fail(`${name} is missing`);
  if ('method' in type) return toJson(ServiceDescriptorProtoSchema, type);
  if ('value' in type) return type.value.map(({ name, number }) => [name, number]);
  return toJson(DescriptorProtoSchema, { ...type, nestedType: [], extension: [] });
}
