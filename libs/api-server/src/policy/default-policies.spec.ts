import { createPolicyClient } from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { DEFAULT_POLICIES, compilePolicy, createPolicySet } from '@cloudless/policy';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { createDefaultPolicies, putDefaultPolicies } from './default-policies.js';
import { toPolicyInput } from './policy-input.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  const transaction = bed.state.transaction();
  putDefaultPolicies(transaction, createSeededRandom(1), bed.clock.wallTime());
  await bed.state.commit(transaction);
});
afterEach(() => bed.stop());

const DENIED: Readonly<Record<string, object>> = {
  'default-privileged': { security: { privileged: true } },
  'default-host-namespaces': { network: { hostNetwork: true } },
  'default-capabilities': { security: { capabilitiesAdd: ['SYS_ADMIN'] } },
};

describe('default policies in the store', () => {
  it('are those of the library', () => {
    const stored = createDefaultPolicies().map(({ name, spec }) => toPolicyInput(name, spec));
    expect(stored).toEqual(DEFAULT_POLICIES);
    expect(() =>
      createPolicySet(
        stored.map((policy) => compilePolicy(policy)),
        'ALLOW',
      ),
    ).not.toThrow();
  });

  it.each(Object.entries(DENIED))(
    'has %s, which is effective until it is deleted',
    async (name, part) => {
      const spec = { image: 'nginx:alpine', ...part };
      const create = () => bed.client.createWorkload({ name: 'web', spec });
      await expect(create()).rejects.toThrow(`policy "${name}"`);
      await createPolicyClient(bed.transport).deletePolicy({ name });
      // A privileged container also has every capability.
      if (name === 'default-privileged')
        await expect(create()).rejects.toThrow('policy "default-capabilities"');
      else await create();
    },
  );

  it('are listed, changed and counted as ordinary policies', async () => {
    const client = createPolicyClient(bed.transport);
    const { policies } = await client.listPolicies({});
    expect(policies.map(({ name }) => name)).toEqual(Object.keys(DENIED).sort());
    expect(policies[0]).toMatchObject({ generation: 1n, spec: { enabled: true } });
    const spec = { enabled: false };
    const updated = await client.updatePolicy({ name: 'default-host-namespaces', spec });
    expect(updated.generation).toBe(2n);
    const host = { image: 'nginx:alpine', network: { hostNetwork: true } };
    await bed.client.createWorkload({ name: 'web', spec: host });
  });

  it('leave processes and ordinary containers alone', async () => {
    await bed.client.createWorkload({ name: 'process', spec: { command: ['serve'] } });
    const security = { capabilitiesAdd: ['NET_BIND_SERVICE'] };
    await bed.client.createWorkload({ name: 'web', spec: { image: 'nginx:alpine', security } });
  });
});
