import { createRouterTransport } from '@connectrpc/connect';
import {
  AgentService,
  CoordinatorService,
  createAgentClient,
  createCoordinatorClient,
} from '../index.js';

it('createCoordinatorClient and createAgentClient return clients of their service', async () => {
  const containerId = 'a'.repeat(64);
  const transport = createRouterTransport(({ service }) => {
    service(CoordinatorService, { getWorkload: ({ name }) => ({ name, uid: 'u' }) });
    service(AgentService, { listContainers: () => ({ containers: [{ containerId }] }) });
  });
  expect(await createCoordinatorClient(transport).getWorkload({ name: 'web' })).toMatchObject({
    name: 'web',
    uid: 'u',
  });
  expect(await createAgentClient(transport).listContainers({})).toMatchObject({
    containers: [{ containerId }],
  });
});
