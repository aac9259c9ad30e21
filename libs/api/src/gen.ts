/** The generated types and services of the published API. */
export * from './gen/cloudless/api/admin_pb.js';
export * from './gen/cloudless/api/agent_service_pb.js';
export * from './gen/cloudless/api/coordinator_service_pb.js';
export * from './gen/cloudless/api/error_pb.js';
export * from './gen/cloudless/api/event_pb.js';
export * from './gen/cloudless/api/exec_pb.js';
export * from './gen/cloudless/api/identity_pb.js';
export * from './gen/cloudless/api/logs_pb.js';
export * from './gen/cloudless/api/network_pb.js';
export * from './gen/cloudless/api/node_network_pb.js';
export * from './gen/cloudless/api/node_pb.js';
export * from './gen/cloudless/api/policy_pb.js';
export * from './gen/cloudless/api/route_pb.js';
export * from './gen/cloudless/api/session_pb.js';
export * from './gen/cloudless/api/stats_pb.js';
export * from './gen/cloudless/api/user_pb.js';
export * from './gen/cloudless/api/workload_pb.js';
